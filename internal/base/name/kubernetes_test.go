// SPDX-License-Identifier: Apache-2.0

package name

import (
	"strings"
	"testing"
)

func TestNamesFollowKubernetesRules(t *testing.T) {
	const none, qualified, subdomain, label = "", "qualified", "qualified subdomain", "qualified subdomain label"
	long := strings.Repeat("a", 63)
	for name, want := range map[string]string{
		"": none, "-": none, "-a": none, "a-": none, "a\n": none, ".": none, "a/b": none, "ä": none, "\u212a": none, long + "a": "subdomain",
		"a": label, "0": label, "a-b": label, "a--b": label, long: label,
		"a.b": subdomain, "a-1.b-2": subdomain,
		"A": qualified, "a_b": qualified, "a..b": qualified, "a.-b": qualified,
		long + ".b": "subdomain", long + "." + long + "." + long + "." + strings.Repeat("a", 61): "subdomain",
		long + "." + long + "." + long + "." + strings.Repeat("a", 62): none, "a.b-": none, "a.": none, ".a": none, "A.b": qualified, long + "a.b": "subdomain",
	} {
		if got := strings.Contains(want, "label"); IsLabel(name) != got {
			t.Errorf("label %q: found %v", name, !got)
		}
		if got := strings.Contains(want, "subdomain"); IsSubdomain(name) != got {
			t.Errorf("subdomain %q: found %v", name, !got)
		}
		if got := IsSubdomain(strings.ToLower(name)) && name != "\u212a"; IsSubdomainInAnyCase(name) != got {
			t.Errorf("subdomain in any case %q: found %v", name, !got)
		}
		if got := strings.Contains(want, "qualified"); IsQualifiedPart(name) != got {
			t.Errorf("qualified %q: found %v", name, !got)
		}
	}
}

func TestUIDIsWholeAndInLowerCase(t *testing.T) {
	const uid = "0c5ab0f4-5d8e-4a7e-9c63-1f2e3d4c5b6a"
	for text, want := range map[string]bool{uid: true, strings.ToUpper(uid): false, uid + "0": false, "x" + uid: false, uid[1:]: false, strings.ReplaceAll(uid, "-", "0"): false, "": false} {
		if got := IsUID(text); got != want {
			t.Errorf("IsUID(%q) = %v, want %v", text, got, want)
		}
	}
}
