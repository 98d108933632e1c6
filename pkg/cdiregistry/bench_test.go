// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"os"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	text, err := os.ReadFile("testdata/good/claim.json")
	if err != nil {
		b.Fatal(err)
	}
	c := &checker{}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if p := c.parse(string(text), ""); p.devices != 4 {
			b.Fatal(c.diags)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	text, err := os.ReadFile("testdata/good/claim.json")
	if err != nil {
		b.Fatal(err)
	}
	c := &checker{}
	p := c.parse(string(text), "")
	bl := p.content(nil)
	b.Logf("%d bytes of JSON, %d of blob", len(text), len(bl.s))
	b.ReportAllocs()
	for b.Loop() {
		var d Device
		bl.fill(2, &d)
	}
}
