// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"strings"
	"testing"
)

func TestJSONLogOf(t *testing.T) {
	for line, want := range map[string]string{
		"crun --systemd-cgroup --log-format=json --log=/run/x/oci-log create --bundle /b id": "/run/x/oci-log",
		"crun --log /a/log --log-format json create id":                                      "/a/log",
		"crun --log=/a/log create --log-format=json id":                                      "",
		"crun --log=/a/log create id":                                                        "",
		"crun --log-format=json --log=a/log create id":                                       "",
		"crun --log-format=json --log":                                                       "",
		"crun":                                                                               "",
		"":                                                                                   "",
	} {
		if got := jsonLogOf(strings.Split(line, " ")); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
