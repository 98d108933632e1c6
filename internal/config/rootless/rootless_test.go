// SPDX-License-Identifier: Apache-2.0

package rootless

import (
	"testing"

	"github.com/jackfield/jackfield/internal/config"
)

func TestHomeDirIsThatOfPasswd(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/sh\nshort:1000\nalice:x:1000:1000:Alice,,:/home/alice/:/bin/sh\nagain:x:1000:1:::\n" +
		"daemon:x:1:1::/:/bin/sh\nrelative:x:2:2::home:/bin/sh\nlast:x:3:3::/home/last:/bin/sh"
	for uid, want := range map[uint32]string{0: "/root", 1000: "/home/alice", 1: "", 2: "", 3: "/home/last", 4: ""} {
		if got := homeDir(passwd, uid); got != want {
			t.Errorf("%d: %q, want %q", uid, got, want)
		}
	}
}

// A user cannot write to the system's state directory. The user's own configuration may name
// another.
func TestUserHasOwnStateDirectory(t *testing.T) {
	own := func(text, file string) *config.Config {
		c, err := config.Parse([]byte(text), file)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const run = "/run/user/1000/jackfield"
	for _, tc := range []struct {
		cfg  *config.Config
		want string
	}{
		{config.Default(), run},
		{own("stateDir: /var/lib/x\n", config.DefaultPath), run},
		{own("cdi: {specDirs: [/x]}\n", "/home/alice/c.yaml"), run},
		{own("stateDir: /home/alice/state\n", "/home/alice/c.yaml"), "/home/alice/state"},
	} {
		if got := StateDir(1000, tc.cfg); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.cfg.File(), got, tc.want)
		}
	}
}
