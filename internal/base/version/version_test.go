// SPDX-License-Identifier: Apache-2.0

package version

import "testing"

func TestBuildString(t *testing.T) {
	for _, tc := range []struct {
		build Build
		want  string
	}{
		{Build{Version: "0.1.0", GoVersion: "go1.26.0"}, "0.1.0 go1.26.0"},
		{Build{Version: "0.1.0", Commit: "0123456789abcdef", GoVersion: "go1.26.0"}, "0.1.0 (0123456789ab) go1.26.0"},
		{Build{Version: "0.0.0-20261126131146-0123456789ab", Commit: "0123456789abcdef", GoVersion: "go1.26.0"}, "0.0.0-20261126131146-0123456789ab go1.26.0"},
		{Build{Version: "0.1.1-0.20261126131146-0123456789ab+dirty", Commit: "0123456789abcdef", Modified: true, GoVersion: "go1.26.0"},
			"0.1.1-0.20261126131146-0123456789ab+dirty go1.26.0"},
		{Build{Version: "devel", Commit: "0123", Modified: true, GoVersion: "go1.26.0"}, "devel (0123+changes) go1.26.0"},
		{Build{Version: "devel", Modified: true, GoVersion: "go1.26.0"}, "devel go1.26.0"},
	} {
		if got := tc.build.String(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.build, got, tc.want)
		}
	}
}

// A build of the module and a build of the release print the same version.
func TestModuleVersionHasNoPrefix(t *testing.T) {
	for module, want := range map[string]string{
		"v0.1.0": "0.1.0", "v0.0.0-20261126131146-0123456789ab": "0.0.0-20261126131146-0123456789ab", "(devel)": "", "": "",
	} {
		if got := releaseName(module); got != want {
			t.Errorf("%s: %q, want %q", module, got, want)
		}
	}
}
