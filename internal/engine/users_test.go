// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Sockets are accessible to the container's user: the one that the runtime reports, or else the one of the
// configuration, as an ID of the host.
func TestSocketsAreAccessibleToContainerUser(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/p1/a.sock")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/p1/a.sock"))
	h.writeInfo("two", "net2", vhostUserInfo("server", "/var/run/vsw/p2/b.sock"))
	h.write("/proc/77/uid_map", "         0     200000      65536\n")
	h.write("/proc/77/gid_map", "         0     300000      65536\n")
	h.write("/proc/78/uid_map", "         0          0 4294967295\n")
	h.write("/proc/79/uid_map", "zero\n")
	h.write("/proc/80/uid_map", strings.Repeat("0 1 1\n", 4000))
	root, err := hostfs.New(h.dir)
	testkit.Must(t, err)
	for _, c := range []struct {
		name, sockets string
		user          *User
		ns            *UserNS
		want          *edit.User
		method        edit.AccessMethod
		err           string
	}{
		{name: "no user known"},
		{name: "user of the configuration", sockets: `user: "1000:1001"`, want: &edit.User{UID: 1000, GID: 1001}},
		{name: "configuration without a group", sockets: `user: "1000", access: owner`, want: &edit.User{UID: 1000, GID: 1000}, method: edit.ByOwner},
		{name: "runtime overrides the configuration", sockets: `user: "1000:1001", access: group`, user: &User{UID: 5, GID: 6}, want: &edit.User{UID: 5, GID: 6}, method: edit.ByGroup},
		{name: "root of a user namespace", ns: &UserNS{PID: 77}, want: &edit.User{UID: 200000, GID: 300000}},
		{name: "user of a user namespace", user: &User{UID: 1000, GID: 7}, ns: &UserNS{PID: 77}, want: &edit.User{UID: 201000, GID: 300007}},
		{name: "user of the configuration in a user namespace", sockets: `user: "1000:1001"`, ns: &UserNS{PID: 77}, want: &edit.User{UID: 201000, GID: 301001}},
		{name: "user without a mapping", user: &User{UID: 65536}, ns: &UserNS{PID: 77}, err: "has no mapping to the host in /proc/77/uid_map"},
		{name: "mappings of config.json", user: &User{UID: 1000, GID: 7}, ns: &UserNS{UIDs: []hostfs.IDMap{{Inside: 0, Outside: 5, Size: 1}, {Inside: 1, Outside: 100000, Size: 65535}}, GIDs: []hostfs.IDMap{{Inside: 0, Outside: 200000, Size: 65536}}},
			want: &edit.User{UID: 100999, GID: 200007}},
		{name: "user outside the mappings of config.json", user: &User{UID: 1000}, ns: &UserNS{UIDs: []hostfs.IDMap{{Inside: 0, Outside: 5, Size: 1}}}, err: "has no mapping to the host in uidMappings"},
		{name: "no group mappings in config.json", ns: &UserNS{UIDs: []hostfs.IDMap{{Inside: 0, Outside: 5, Size: 1}}}, err: "has no mapping to the host in gidMappings"},
		{name: "process overrides the mappings of config.json", ns: &UserNS{PID: 77, UIDs: []hostfs.IDMap{{Inside: 0, Outside: 5, Size: 1}}}, want: &edit.User{UID: 200000, GID: 300000}},
		{name: "runtime reports no process", ns: &UserNS{}, err: "the runtime names no process"},
		{name: "pinned namespace that is gone", ns: &UserNS{Path: "/run/userns/gone"}, err: "/run/userns/gone"},
		{name: "process and a pinned namespace that is gone", ns: &UserNS{PID: 77, Path: "/run/userns/gone"}, want: &edit.User{UID: 200000, GID: 300000}},
		{name: "process in another PID namespace", ns: &UserNS{PID: 76}, err: "hostPID: true"},
		{name: "process of the host", ns: &UserNS{PID: 78}, err: "number processes differently"},
		{name: "invalid uid_map", ns: &UserNS{PID: 79}, err: `/proc/79/uid_map: line 1: invalid value "zero"`},
		{name: "uid_map with too many lines", ns: &UserNS{PID: 80}, err: "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(strings.ReplaceAll(rules, "MODE", "enforce"), "sockets: {", "sockets: {"+c.sockets+", ", 1)
			cfg, err := config.Parse([]byte(strings.Replace(text, "{, ", "{", 1)), "/etc/jackfield/config.yaml")
			testkit.Must(t, err)
			for _, staged := range []bool{true, false} {
				e, err := New(root, cfg, Options{FindSocketDir: staging.SocketDirFinder(root, cfg.StateDir, ""), Staged: func() bool { return staged }})
				testkit.Must(t, err)
				r := newRequest("")
				r.User, r.UserNS = c.user, c.ns
				plan, err := e.Resolve(t.Context(), r)
				testkit.Must(t, e.Close())
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "vhost-user.path") {
						t.Errorf("got %v, want %q and the field", err, c.err)
					}
					continue
				}
				testkit.Must(t, err)
				method := c.method
				if method == "" {
					method = edit.ByACL
				}
				for _, k := range plan.Staging.Sockets {
					if (k.Access.User == nil) != (c.want == nil) || c.want != nil && *k.Access.User != *c.want || k.Access.Method != method {
						t.Errorf("staged %t: access for %+v by %s, want %+v by %s", staged, k.Access.User, k.Access.Method, c.want, method)
					}
				}
				// The socket is prepared in each mode, so that it is checked against claims of other sandboxes.
				if len(plan.Staging.Sockets) != 1 {
					t.Errorf("staged %t: %d sockets", staged, len(plan.Staging.Sockets))
				}
				d := plan.Staging.SocketDirs
				if len(d) != 1 || c.want == nil && d[0].Access.User != nil ||
					c.want != nil && (d[0].Access.User == nil || *d[0].Access.User != *c.want || d[0].Access.Method != method) {
					t.Errorf("staged %t: socket directories %+v, want owner %+v", staged, d, c.want)
				}
			}
		})
	}
}
