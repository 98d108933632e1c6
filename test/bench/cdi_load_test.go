// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// BenchmarkCDIColdLoad reads a directory from nothing. "floor" reads, decodes and
// validates the same files one after the other, and keeps nothing.
func BenchmarkCDIColdLoad(b *testing.B) {
	for _, n := range cdiSizes {
		dir := cdiDirectory(b, n)
		b.Run(fmt.Sprintf("n=%d/floor", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				names, err := os.ReadDir(dir)
				if err != nil {
					b.Fatal(err)
				}
				var v cdiregistry.Validator
				for _, name := range names {
					text, err := os.ReadFile(dir + "/" + name.Name())
					if err != nil {
						b.Fatal(err)
					}
					if d := v.Validate(text); len(d) > 0 {
						b.Fatal(d)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("n=%d/jackfield", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := cdiregistry.New(hostfs.Host(), []string{dir}, cdiregistry.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.Snapshot().Device(cdiQualified(n-1, 0)); err != nil {
					b.Fatal(err)
				}
				b.StopTimer() // ending an inotify descriptor waits for the kernel, some 8 ms
				r.Close()
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("n=%d/upstream", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
				if err != nil {
					b.Fatal(err)
				}
				if c.GetDevice(cdiQualified(n-1, 0)) == nil {
					b.Fatal("device is missing")
				}
			}
		})
	}
}
