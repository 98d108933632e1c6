// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is the cluster's certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

// validity is that of all certificates. A cluster lives shorter.
const validity = 30 * 24 * time.Hour

// newAuthority creates an authority that writes its files to dir. Its certificate is ca.crt.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	a := &authority{key: key, dir: dir, cert: template(pkix.Name{CommonName: "jackfield-cluster"})}
	a.cert.IsCA, a.cert.BasicConstraintsValid = true, true
	a.cert.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	return a, a.writePEM("ca.crt", "CERTIFICATE", der)
}

// issue writes NAME.crt and NAME.key, for a client with a user name and groups, and a server with addresses.
func (a *authority) issue(name, user string, groups, hosts []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("issue certificate %q: %w", name, err)
	}
	cert := template(pkix.Name{CommonName: user, Organization: groups})
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("issue certificate %q: %w", name, err)
	}
	if err := a.writePEM(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.writeKey(name, key)
}

// signingKey writes NAME.key and NAME.pub, with which service account tokens are signed and verified.
func (a *authority) signingKey(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create key %q: %w", name, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("create key %q: %w", name, err)
	}
	if err := a.writePEM(name+".pub", "PUBLIC KEY", der); err != nil {
		return err
	}
	return a.writeKey(name, key)
}

func (a *authority) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("write key %q: %w", name, err)
	}
	return a.writePEM(name+".key", "EC PRIVATE KEY", der)
}

func (a *authority) writePEM(name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func template(subject pkix.Name) *x509.Certificate {
	var serial [16]byte
	rand.Read(serial[:])
	now := time.Now()
	return &x509.Certificate{SerialNumber: new(big.Int).SetBytes(serial[:]), Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity)}
}
