// SPDX-License-Identifier: Apache-2.0

package hostsocket

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ServeSPIFFE serves the SPIFFE Workload API at a path until ctx is done. Like a SPIRE agent it identifies a peer by the
// credentials of its connection: a peer gets the identity spiffe://example.org/NAME/user/UID.
func ServeSPIFFE(ctx context.Context, path, name string) error {
	authority, err := newAuthority(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(peerCredentials{}))
	workload.RegisterSpiffeWorkloadAPIServer(server, authority)
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}

// authority issues identities of one trust domain.
type authority struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := newTemplate("spiffe://example.org")
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{name: name, cert: cert, key: key}, err
}

func newTemplate(id string) *x509.Certificate {
	uri, _ := url.Parse(id) // of this file
	return &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: []*url.URL{uri}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
}

// FetchX509SVID sends the peer its identity, and keeps the stream open.
func (a *authority) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	// The header keeps out requests that a browser can be tricked into.
	if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get("workload.spiffe.io")) == 0 {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	caller, ok := peer.FromContext(stream.Context())
	info, known := caller.AuthInfo.(peerInfo)
	if !ok || !known {
		return status.Error(codes.PermissionDenied, "the peer is unknown")
	}
	id := fmt.Sprintf("spiffe://example.org/%s/user/%d", a.name, info.UID)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert, err := x509.CreateCertificate(rand.Reader, newTemplate(id), a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := stream.Send(&workload.X509SVIDResponse{Svids: []*workload.X509SVID{{SpiffeId: id, X509Svid: cert, X509SvidKey: private, Bundle: a.cert.Raw}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// peerCredentials takes a peer's user from its UNIX socket.
type peerCredentials struct{}

// peerInfo is the user of a peer.
type peerInfo struct {
	credentials.CommonAuthInfo
	UID uint32
}

func (peerInfo) AuthType() string { return "peer" }

func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var found *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { found, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil || err != nil {
		return nil, nil, errors.Join(controlErr, err)
	}
	return conn, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, found.Uid}, nil
}

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer"}
}
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }
func (peerCredentials) OverrideServerName(string) error           { return nil }

// WatchSPIFFE prints the identity that each connection to the Workload API brings, once it is verified. It uses the library
// of the SPIFFE project, which connects again by itself.
func WatchSPIFFE(ctx context.Context, path string, out io.Writer) error {
	return workloadapi.WatchX509Context(ctx, printer{out}, workloadapi.WithAddr("unix://"+path), workloadapi.WithBackoffStrategy(retryStrategy{}))
}

type printer struct{ out io.Writer }

func (p printer) OnX509ContextUpdate(c *workloadapi.X509Context) {
	svid := c.DefaultSVID()
	id, _, err := x509svid.Verify(svid.Certificates, c.Bundles)
	if err != nil {
		fmt.Fprintln(p.out, "error:", err)
		return
	}
	fmt.Fprintln(p.out, "identity", id)
}

func (p printer) OnX509ContextWatchError(err error) { fmt.Fprintln(p.out, "waits:", err) }

// retryStrategy retries at a steady pace.
type retryStrategy struct{}

func (retryStrategy) NewBackoff() workloadapi.Backoff { return retryStrategy{} }
func (retryStrategy) Next() time.Duration             { return retryPause }
func (retryStrategy) Reset()                          {}

// retryPause is the time between two attempts to connect.
const retryPause = 50 * time.Millisecond
