// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"testing"

	upstream "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// BenchmarkCDIColdLoad measures the time from opening a registry until the first device is found.
func BenchmarkCDIColdLoad(b *testing.B) {
	for _, n := range cdiSizes {
		dir := cdiDirectory(b, n)
		b.Run(fmt.Sprintf("n=%d/jackfield", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := cdi.NewCache(cdi.Options{SpecDirs: []string{dir}})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.Snapshot().Device(cdiQualified(n-1, 0)); err != nil {
					b.Fatal(err)
				}
				b.StopTimer() // closing an inotify descriptor takes about 8 ms in the kernel
				r.Close()
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("n=%d/upstream", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, err := upstream.NewCache(upstream.WithSpecDirs(dir), upstream.WithAutoRefresh(false))
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
