// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strconv"
	"strings"
)

// procs matches the number of processors at the end of a benchmark's name.
var procs = regexp.MustCompile(`-\d+$`)

// parse adds the results in the output of the testing package:
//
//	BenchmarkName/case-2   123   4.5 ns/op   6 metric
func (r results) parse(output string) {
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		if _, err := strconv.Atoi(fields[1]); err != nil {
			continue
		}
		name := procs.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				break
			}
			key := figure{name, fields[i+1]}
			r[key] = append(r[key], v)
		}
	}
}
