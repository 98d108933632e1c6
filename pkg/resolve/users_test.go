// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
)

// Whom sockets are for: whom the runtime says, or else the configuration, as the host
// knows him.
func TestWhoseSocketsAre(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/p1/a.sock")
	h.info("one", "net1", vhost("client", "/var/run/vsw/p1/a.sock"))
	h.info("two", "net2", vhost("server", "/var/run/vsw/p2/b.sock"))
	h.write("/proc/77/uid_map", "         0     200000      65536\n")
	h.write("/proc/77/gid_map", "         0     300000      65536\n")
	h.write("/proc/78/uid_map", "         0          0 4294967295\n")
	h.write("/proc/79/uid_map", "zero\n")
	h.write("/proc/80/uid_map", strings.Repeat("0 1 1\n", 4000))
	root, err := hostfs.New(h.dir)
	must(t, err)
	for _, c := range []struct {
		name, sockets string
		user          *User
		ns            *UserNS
		want          *staging.User
		way           staging.Way
		err           string
	}{
		{name: "nobody says"},
		{name: "the configuration says", sockets: `user: "1000:1001"`, want: &staging.User{UID: 1000, GID: 1001}},
		{name: "the configuration says a user only", sockets: `user: "1000", access: owner`, want: &staging.User{UID: 1000, GID: 1000}, way: staging.ByOwner},
		{name: "the runtime knows better", sockets: `user: "1000:1001", access: group`, user: &User{UID: 5, GID: 6}, want: &staging.User{UID: 5, GID: 6}, way: staging.ByGroup},
		{name: "root of a user namespace", ns: &UserNS{PID: 77}, want: &staging.User{UID: 200000, GID: 300000}},
		{name: "a user of a user namespace", user: &User{UID: 1000, GID: 7}, ns: &UserNS{PID: 77}, want: &staging.User{UID: 201000, GID: 300007}},
		{name: "the configuration's in a user namespace", sockets: `user: "1000:1001"`, ns: &UserNS{PID: 77}, want: &staging.User{UID: 201000, GID: 301001}},
		{name: "not mapped", user: &User{UID: 65536}, ns: &UserNS{PID: 77}, err: "/proc/77/uid_map does not map it"},
		{name: "what the configuration will map", user: &User{UID: 1000, GID: 7}, ns: &UserNS{UIDs: []IDMap{{0, 5, 1}, {1, 100000, 65535}}, GIDs: []IDMap{{0, 200000, 65536}}},
			want: &staging.User{UID: 100999, GID: 200007}},
		{name: "what the configuration will not map", user: &User{UID: 1000}, ns: &UserNS{UIDs: []IDMap{{0, 5, 1}}}, err: "uidMappings does not map it"},
		{name: "no group that it will map", ns: &UserNS{UIDs: []IDMap{{0, 5, 1}}}, err: "gidMappings does not map it"},
		{name: "a process says more", ns: &UserNS{PID: 77, UIDs: []IDMap{{0, 5, 1}}}, want: &staging.User{UID: 200000, GID: 300000}},
		{name: "no process is told", ns: &UserNS{}, err: "the runtime names no process"},
		{name: "the process is not seen", ns: &UserNS{PID: 76}, err: "hostPID: true"},
		{name: "another process", ns: &UserNS{PID: 78}, err: "number processes differently"},
		{name: "no map", ns: &UserNS{PID: 79}, err: `/proc/79/uid_map: line 1: found "zero"`},
		{name: "too large a map", ns: &UserNS{PID: 80}, err: "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(strings.ReplaceAll(rules, "MODE", "enforce"), "sockets: {", "sockets: {"+c.sockets+", ", 1)
			cfg, err := config.Parse([]byte(strings.Replace(text, "{, ", "{", 1)), "/etc/jackfield/config.yaml")
			must(t, err)
			for _, staged := range []bool{true, false} {
				e, err := New(root, cfg, Options{Staged: func() bool { return staged }})
				must(t, err)
				r := ask("")
				r.User, r.UserNS = c.user, c.ns
				plan, err := e.Resolve(t.Context(), r)
				must(t, e.Close())
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "vhost-user.path") {
						t.Errorf("%v, want %q and the field", err, c.err)
					}
					continue
				}
				must(t, err)
				way := c.way
				if way == "" {
					way = staging.ByACL
				}
				for _, k := range plan.Staging.Sockets {
					if (k.Access.User == nil) != (c.want == nil) || c.want != nil && *k.Access.User != *c.want || k.Access.Way != way {
						t.Errorf("staged %t: access of %+v by %s, want %+v by %s", staged, k.Access.User, k.Access.Way, c.want, way)
					}
				}
				// In each mode, so that no other sandbox gets at it.
				if len(plan.Staging.Sockets) != 1 {
					t.Errorf("staged %t: %d sockets", staged, len(plan.Staging.Sockets))
				}
				d := plan.Staging.SocketDirs
				if len(d) != 1 || c.want == nil && (d[0].UID != -1 || d[0].GID != -1) ||
					c.want != nil && (d[0].UID != int(c.want.UID) || d[0].GID != int(c.want.GID) || d[0].Way != way) {
					t.Errorf("staged %t: socket directories %+v, want of %+v", staged, d, c.want)
				}
			}
		})
	}
}
