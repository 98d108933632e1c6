// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"testing"
)

// FuzzPortOf holds that HOST:PORT is read as package net reads it.
func FuzzPortOf(f *testing.F) {
	for _, s := range []string{"", ":", ":80", "a", "a:", "a:80", "127.0.0.1:9480", "[::1]:80", "[::1%lo0]:80", "[::1]", "[::1]80", "::1:80", "[a:80", "a]:80", "[[a]]:80", "[a]b:80",
		"[a]:80]", "[a]:[80", "[]:80", "[a]:b:80", "[a:80]", "[:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, want, err := net.SplitHostPort(s)
		if got, ok := portOf(s); ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %q, %v, want %q, %v", s, got, ok, want, err)
		}
	})
}
