// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
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

// replaceEngine replaces the engine with one of another configuration, with or without staging.
func (h *host) replaceEngine(text string, staged bool) {
	h.t.Helper()
	root, err := hostfs.New(h.dir)
	testkit.Must(h.t, err)
	cfg, err := config.Parse([]byte(text), "/etc/jackfield/config.yaml")
	testkit.Must(h.t, err)
	testkit.Must(h.t, h.e.Close())
	h.e, err = New(root, cfg, Options{FindSocketDir: staging.SocketDirFinder(root, cfg.StateDir, ""), Staged: func() bool { return staged }})
	testkit.Must(h.t, err)
}

// recordCreatedDir creates a directory and claims it for a sandbox, as jackfield-cni does.
func (h *host) recordCreatedDir(path, sandbox string) {
	h.t.Helper()
	testkit.Must(h.t, os.MkdirAll(filepath.Join(h.dir, path), 0o755))
	d, holder := sockdir.New(h.e.host, "/var/run/jackfield/claims"), sockdir.Holder{Sandbox: sandbox, Adapter: sockdir.CNI}
	_, err := d.Claim(path, holder, true)
	testkit.Must(h.t, err)
	f, err := os.Open(filepath.Join(h.dir, path))
	testkit.Must(h.t, err)
	defer f.Close()
	_, err = d.Limit(path, int(f.Fd()), holder, 0)
	testkit.Must(h.t, err)
}

// If the application creates the socket, the container gets the whole directory. The directory must have been
// created for the sandbox, or policy must grant everything below it.
func TestDirectoryOfApplicationSocket(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/ports/b-victim.sock")
	h.listen("/run/vsw/ports/secret/s.sock")
	h.listen("/run/vsw/whole/x/other.sock")
	h.listen("/run/vsw/open/x.sock")
	h.recordCreatedDir("/run/vsw/ports/a/mine", "sb")
	h.recordCreatedDir("/run/vsw/ports/a-theirs", "other")
	for _, staged := range []bool{true, false} {
		h.replaceEngine(strings.Replace(portRules, "MODE", "enforce", 1), staged)
		for path, words := range map[string][]string{
			"/var/run/vsw/ports/a-evil.sock":      {`"/var/run/vsw/ports" existed before`, "/run/vsw/ports/**", "allow.sockets of rule \"ports\"", "vhost-user.path"},
			"/var/run/vsw/open/mine.sock":         {"denied by rule", "/run/vsw/open/secret/**"},
			"/var/run/vsw/whole/x/s.sock":         nil,
			"/run/vsw/whole/s.sock":               nil,
			"/var/run/vsw/ports/a/mine/vhu.sock":  nil, // created by jackfield-cni
			"/var/run/vsw/ports/a/fresh/vhu.sock": nil, // created when the container is staged
		} {
			h.writeInfo("one", "net1", vhostUserInfo("server", path))
			if words != nil {
				h.wantRefusal(newRequest(""), errdefs.IsPermissionDenied, words...)
				continue
			}
			p := h.resolve(newRequest(""))
			if d := p.Staging.SocketDirs; len(d) != 1 || d[0].Rel != filepath.Dir(strings.TrimPrefix(strings.TrimPrefix(path, "/var"), "/run/vsw/")) {
				t.Errorf("staged %t: %s: %+v", staged, path, d)
			}
		}
	}
	// A directory that was created for another sandbox is denied.
	text := strings.Replace(strings.Replace(portRules, "MODE", "enforce", 1), `ports/a-*"`, `ports/a-*/*", "/var/run/vsw/ports/*/vhu.sock"`, 1)
	h.replaceEngine(text, true)
	h.writeInfo("one", "net1", vhostUserInfo("server", "/var/run/vsw/ports/a-theirs/vhu.sock"))
	h.wantRefusal(newRequest(""), errdefs.IsPermissionDenied, "existed before")
	// In audit mode the directory is mounted, and the item has enforce mode's denial.
	h.replaceEngine(strings.Replace(portRules, "MODE", "audit", 1), true)
	h.writeInfo("one", "net1", vhostUserInfo("server", "/var/run/vsw/ports/a-evil.sock"))
	p := h.resolve(newRequest(""))
	if d := p.Staging.SocketDirs; len(d) != 1 || !d[0].Granted || !strings.Contains(p.Items[0].Audit, `socket directory "/var/run/vsw/ports"`) {
		t.Errorf("audit mode: %+v, %q", d, p.Items[0].Audit)
	}
	h.writeInfo("one", "net1", vhostUserInfo("server", "/var/run/vsw/ports/a/mine/vhu.sock"))
	if p := h.resolve(newRequest("")); p.Items[0].Audit != "" {
		t.Errorf("audit mode, the sandbox's own directory: %q", p.Items[0].Audit)
	}
}

// Without staging, the runtime mounts the directory of a host's socket if policy grants all of it. Otherwise the
// runtime mounts only the socket.
func TestSocketIsMountedAloneIfDirectoryIsNotGranted(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/ports/a-own.sock")
	h.listen("/run/vsw/ports/b-victim.sock")
	h.listen("/run/vsw/whole/x.sock")
	h.listen("/run/vsw/open/x.sock")
	h.recordCreatedDir("/run/vsw/ports/a/mine", "sb")
	h.listen("/run/vsw/ports/a/mine/x.sock")
	h.replaceEngine(strings.Replace(portRules, "MODE", "enforce", 1), false)
	for path, alone := range map[string]bool{
		"/var/run/vsw/ports/a-own.sock":    true,
		"/var/run/vsw/open/x.sock":         true, // policy denies a path below the directory
		"/var/run/vsw/whole/x.sock":        false,
		"/var/run/vsw/ports/a/mine/x.sock": false,
	} {
		h.writeInfo("one", "net1", vhostUserInfo("client", path))
		p := h.resolve(newRequest(""))
		source, inside, own := filepath.Join(h.dir, strings.TrimPrefix(path, "/var")), "/var/run/jackfield/net/net1/"+filepath.Base(path), path
		at := []string{"net/net1/" + filepath.Base(path)}
		if !alone {
			source, inside, own, at = filepath.Dir(source), filepath.Dir(inside), filepath.Dir(own), nil
		}
		for _, dst := range []string{inside, own} {
			if !slices.ContainsFunc(p.Set.Mounts, func(m edit.Mount) bool { return m.Source == source && m.Destination == dst }) {
				t.Errorf("%s: no mount of %s at %s: %+v", path, source, dst, p.Set.Mounts)
			}
		}
		for _, m := range p.Set.Mounts {
			if alone && m.Source == filepath.Dir(source) {
				t.Errorf("%s: the directory is mounted at %s", path, m.Destination)
			}
		}
		// The socket is prepared in each case, so that it is checked against claims of other sandboxes.
		if k := p.Staging.Sockets; len(k) != 1 || !slices.Equal(k[0].At, at) {
			t.Errorf("%s: sockets to prepare: %+v", path, k)
		}
		noted := strings.Contains(strings.Join(p.Items[0].Notes, "\n"), "loses it when the host re-creates it")
		if view := string(p.Staging.Files[0].Data); noted != alone || strings.Contains(view, "loses it") != alone {
			t.Errorf("%s: notes %q, view %s", path, p.Items[0].Notes, view)
		}
	}
	// The socket root itself is never mounted, whatever policy grants.
	h.listen("/run/vsw/root.sock")
	h.replaceEngine(strings.Replace(strings.Replace(portRules, "MODE", "enforce", 1), "/var/run/vsw/ports/a-*", "/var/run/vsw/**", 1), false)
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/root.sock"))
	if k := h.resolve(newRequest("")).Staging.Sockets; len(k) != 1 || len(k[0].At) != 1 {
		t.Errorf("socket in the root: %+v", k)
	}
	h.writeInfo("one", "net1", vhostUserInfo("server", "/var/run/vsw/root.sock"))
	h.wantRefusal(newRequest(""), errdefs.IsFailedPrecondition, "all pods share")
}

// Staging checks again whether the directory existed before the sandbox.
func TestStagingRefusesDirectoryCreatedLater(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceEngine(strings.Replace(portRules, "MODE", "enforce", 1), false)
	h.writeInfo("one", "net1", vhostUserInfo("server", "/var/run/vsw/ports/a/late/vhu.sock"))
	h.replaceEngine(strings.Replace(strings.Replace(portRules, "MODE", "enforce", 1), "ports/a/**", "ports/a/*/*", 1), false)
	p := h.resolve(newRequest(""))
	testkit.Must(t, os.MkdirAll(filepath.Join(h.dir, "run/vsw/ports/a/late"), 0o755))
	store, err := staging.Open(h.e.host, "/var/run/jackfield", staging.Options{Mode: staging.ModeDirectory})
	testkit.Must(t, err)
	if err := store.Prepare(*p.Staging); !isRefusal(err) || !strings.Contains(err.Error(), "/var/run/vsw/ports/a/late/**") {
		t.Errorf("got %v", err)
	}
}
