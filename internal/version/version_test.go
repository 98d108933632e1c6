// SPDX-License-Identifier: Apache-2.0

package version

import "testing"

func TestBuildString(t *testing.T) {
	for _, tc := range []struct {
		build Build
		want  string
	}{
		{Build{Version: "v0.1.0", GoVersion: "go1.26.0"}, "v0.1.0 go1.26.0"},
		{Build{Version: "v0.1.0", Commit: "0123456789abcdef", GoVersion: "go1.26.0"}, "v0.1.0 (0123456789ab) go1.26.0"},
		{Build{Version: "devel", Commit: "0123", Modified: true, GoVersion: "go1.26.0"}, "devel (0123+changes) go1.26.0"},
		{Build{Version: "devel", Modified: true, GoVersion: "go1.26.0"}, "devel go1.26.0"},
	} {
		if got := tc.build.String(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.build, got, tc.want)
		}
	}
}
