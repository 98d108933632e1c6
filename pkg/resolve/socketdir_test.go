// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
)

const portRules = `
sockets: {roots: [/var/run/vsw]}
policy:
  mode: MODE
  rules:
    - name: ports
      for: {namespaces: [ns]}
      allow: {sockets: ["/var/run/vsw/ports/a-*", "/var/run/vsw/ports/a/**", "/var/run/vsw/whole/**", "/run/vsw/whole/**", "/var/run/vsw/open/**"]}
      deny: {sockets: ["/run/vsw/open/secret/**"]}
`

func (h *host) engine(text string, staged bool) {
	h.t.Helper()
	root, err := hostfs.New(h.dir)
	must(h.t, err)
	cfg, err := config.Parse([]byte(text), "/etc/jackfield/config.yaml")
	must(h.t, err)
	must(h.t, h.e.Close())
	h.e, err = New(root, cfg, Options{Staged: func() bool { return staged }})
	must(h.t, err)
}

// created records a directory as the adapter does that creates it for a sandbox.
func (h *host) created(path, sandbox string) {
	h.t.Helper()
	must(h.t, os.MkdirAll(filepath.Join(h.dir, path), 0o755))
	d := claims.At(h.e.host, "/var/run/jackfield/claims")
	_, _, err := d.ClaimDirectory(path, claims.Holder{Sandbox: sandbox, Adapter: claims.CNI})
	must(h.t, err)
	f, err := os.Open(filepath.Join(h.dir, path))
	must(h.t, err)
	defer f.Close()
	id, err := claims.IdentityOf(int(f.Fd()))
	must(h.t, err)
	must(h.t, d.SetCreated(path, id))
}

// The directory of a socket that the application makes brings everything along that is in
// it: it has to be the sandbox's own, or granted as a whole.
func TestTheDirectoryOfAnApplicationsSocket(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/ports/b-victim.sock")
	h.listen("/run/vsw/ports/secret/s.sock")
	h.listen("/run/vsw/whole/x/other.sock")
	h.listen("/run/vsw/open/x.sock")
	h.created("/run/vsw/ports/a/mine", "sb")
	h.created("/run/vsw/ports/a-theirs", "other")
	for _, staged := range []bool{true, false} {
		h.engine(strings.Replace(portRules, "MODE", "enforce", 1), staged)
		for path, words := range map[string][]string{
			"/var/run/vsw/ports/a-evil.sock":      {`"/var/run/vsw/ports" existed before`, "/run/vsw/ports/**", "allow.sockets of rule \"ports\"", "vhost-user.path"},
			"/var/run/vsw/open/mine.sock":         {"denied by rule", "/run/vsw/open/secret/**"},
			"/var/run/vsw/whole/x/s.sock":         nil,
			"/run/vsw/whole/s.sock":               nil,
			"/var/run/vsw/ports/a/mine/vhu.sock":  nil, // created by jackfield-cni
			"/var/run/vsw/ports/a/fresh/vhu.sock": nil, // created now
		} {
			h.info("one", "net1", vhost("server", path))
			if words != nil {
				h.refuse(ask(""), errdefs.IsPermissionDenied, words...)
				continue
			}
			p := h.resolve(ask(""))
			if d := p.Staging.SocketDirs; len(d) != 1 || d[0].Rel != filepath.Dir(strings.TrimPrefix(strings.TrimPrefix(path, "/var"), "/run/vsw/")) {
				t.Errorf("staged %t: %s: %+v", staged, path, d)
			}
		}
	}
	// Another sandbox's, and a directory that took the place of this one's.
	text := strings.Replace(strings.Replace(portRules, "MODE", "enforce", 1), `ports/a-*"`, `ports/a-*/*", "/var/run/vsw/ports/*/vhu.sock"`, 1)
	h.engine(text, true)
	h.info("one", "net1", vhost("server", "/var/run/vsw/ports/a-theirs/vhu.sock"))
	h.refuse(ask(""), errdefs.IsPermissionDenied, "existed before")
	// Under audit it is handed over, and what enforce would say is noted.
	h.engine(strings.Replace(portRules, "MODE", "audit", 1), true)
	h.info("one", "net1", vhost("server", "/var/run/vsw/ports/a-evil.sock"))
	p := h.resolve(ask(""))
	if d := p.Staging.SocketDirs; len(d) != 1 || !d[0].Granted || !strings.Contains(p.Items[0].Audit, `socket directory "/var/run/vsw/ports"`) {
		t.Errorf("under audit: %+v, %q", d, p.Items[0].Audit)
	}
	h.info("one", "net1", vhost("server", "/var/run/vsw/ports/a/mine/vhu.sock"))
	if p := h.resolve(ask("")); p.Items[0].Audit != "" {
		t.Errorf("its own, under audit: %q", p.Items[0].Audit)
	}
}

// Where sockets are not staged, the runtime binds the directory of a socket of the host
// only where all of it may be handed over, and else the socket alone.
func TestASocketAloneInDirectoryMode(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/ports/a-own.sock")
	h.listen("/run/vsw/ports/b-victim.sock")
	h.listen("/run/vsw/whole/x.sock")
	h.listen("/run/vsw/open/x.sock")
	h.created("/run/vsw/ports/a/mine", "sb")
	h.listen("/run/vsw/ports/a/mine/x.sock")
	h.engine(strings.Replace(portRules, "MODE", "enforce", 1), false)
	for path, alone := range map[string]bool{
		"/var/run/vsw/ports/a-own.sock":    true,
		"/var/run/vsw/open/x.sock":         true, // something in it is denied
		"/var/run/vsw/whole/x.sock":        false,
		"/var/run/vsw/ports/a/mine/x.sock": false,
	} {
		h.info("one", "net1", vhost("client", path))
		p := h.resolve(ask(""))
		source, inside, own := filepath.Join(h.dir, strings.TrimPrefix(path, "/var")), "/var/run/jackfield/net/net1/"+filepath.Base(path), path
		at := []string{"net/net1/" + filepath.Base(path)}
		if !alone {
			source, inside, own, at = filepath.Dir(source), filepath.Dir(inside), filepath.Dir(own), nil
		}
		for _, dst := range []string{inside, own} {
			if !slices.ContainsFunc(p.Set.Mounts, func(m edits.Mount) bool { return m.Source == source && m.Destination == dst }) {
				t.Errorf("%s: no mount of %s at %s: %+v", path, source, dst, p.Set.Mounts)
			}
		}
		for _, m := range p.Set.Mounts {
			if alone && m.Source == filepath.Dir(source) {
				t.Errorf("%s: its directory is mounted at %s", path, m.Destination)
			}
		}
		// Prepared in each case, so that another sandbox's directory is refused.
		if k := p.Staging.Sockets; len(k) != 1 || !slices.Equal(k[0].At, at) {
			t.Errorf("%s: sockets to prepare: %+v", path, k)
		}
		noted := strings.Contains(strings.Join(p.Items[0].Notes, "\n"), "loses it when the host re-creates it")
		if view := string(p.Staging.Files[0].Data); noted != alone || strings.Contains(view, "loses it") != alone {
			t.Errorf("%s: notes %q, view %s", path, p.Items[0].Notes, view)
		}
	}
	// Also one in the socket root itself, which no policy hands over.
	h.listen("/run/vsw/root.sock")
	h.engine(strings.Replace(strings.Replace(portRules, "MODE", "enforce", 1), "/var/run/vsw/ports/a-*", "/var/run/vsw/**", 1), false)
	h.info("one", "net1", vhost("client", "/var/run/vsw/root.sock"))
	if k := h.resolve(ask("")).Staging.Sockets; len(k) != 1 || len(k[0].At) != 1 {
		t.Errorf("in the root: %+v", k)
	}
	h.info("one", "net1", vhost("server", "/var/run/vsw/root.sock"))
	h.refuse(ask(""), errdefs.IsFailedPrecondition, "all pods share")
}

// What resolve found may have changed when the directory is created.
func TestTheRefusalIsPreparedToo(t *testing.T) {
	h := newHost(t, "enforce")
	h.engine(strings.Replace(portRules, "MODE", "enforce", 1), false)
	h.info("one", "net1", vhost("server", "/var/run/vsw/ports/a/late/vhu.sock"))
	h.engine(strings.Replace(strings.Replace(portRules, "MODE", "enforce", 1), "ports/a/**", "ports/a/*/*", 1), false)
	p := h.resolve(ask(""))
	must(t, os.MkdirAll(filepath.Join(h.dir, "run/vsw/ports/a/late"), 0o755))
	store, err := staging.Open(h.e.host, "/var/run/jackfield", staging.Options{Mode: staging.Directories})
	must(t, err)
	if err := store.Prepare(*p.Staging); !isRefusal(err) || !strings.Contains(err.Error(), "/var/run/vsw/ports/a/late/**") {
		t.Errorf("got %v", err)
	}
}
