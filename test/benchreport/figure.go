// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// figure is one metric of one benchmark: the name as the testing package prints it,
// less "Benchmark" and the number of processors, and the metric's unit.
type figure struct{ bench, metric string }

// f parses a figure such as "CDIAdd/n=10/jackfield p50-ns". The default metric is ns/op.
func f(s string) figure {
	bench, metric, ok := strings.Cut(s, " ")
	if !ok {
		metric = "ns/op"
	}
	return figure{bench, metric}
}

// function returns the name of the benchmark function.
func (f figure) function() string {
	name, _, _ := strings.Cut(f.bench, "/")
	return name
}

// withSize returns the figure with N replaced by n.
func (f figure) withSize(n int) figure {
	return figure{strings.ReplaceAll(f.bench, "n=N", "n="+strconv.Itoa(n)), f.metric}
}

// results has the values that each benchmark reported, one for each run.
type results map[figure][]float64

// median returns the median of a figure in its base unit (ns, B, %, or none), and false if it was not
// measured.
func (r results) median(f figure) (float64, bool) {
	v := slices.Sorted(slices.Values(r[f]))
	if len(v) == 0 {
		return 0, false
	}
	return v[len(v)/2] * scale(f.metric), true
}

// extremes returns the least and the greatest value.
func (r results) extremes(f figure) (low, high float64) {
	v := slices.Sorted(slices.Values(r[f]))
	return v[0] * scale(f.metric), v[len(v)-1] * scale(f.metric)
}

// unit returns the base unit of a metric: "ns", "B", "%" or "".
func unit(metric string) string {
	for _, part := range strings.FieldsFunc(metric, func(c rune) bool { return c == '-' || c == '/' }) {
		switch part {
		case "ns", "µs", "ms", "s":
			return "ns"
		case "B", "KiB", "MiB":
			return "B"
		case "%missed", "%core":
			return "%"
		}
	}
	return ""
}

// scale returns the factor from a metric's unit to its base unit.
func scale(metric string) float64 {
	for _, part := range strings.FieldsFunc(metric, func(c rune) bool { return c == '-' || c == '/' }) {
		switch part {
		case "µs":
			return 1e3
		case "ms":
			return 1e6
		case "s":
			return 1e9
		case "KiB":
			return 1 << 10
		case "MiB":
			return 1 << 20
		}
	}
	return 1
}

// text formats a value for a reader.
func text(v float64, unit string) string {
	switch unit {
	case "ns":
		for _, u := range []struct {
			size float64
			name string
		}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
			if v >= u.size {
				return digits(v/u.size) + " " + u.name
			}
		}
		return digits(v) + " ns"
	case "B":
		if v >= 1<<20 {
			return digits(v/(1<<20)) + " MiB"
		}
		if v >= 1<<10 {
			return digits(v/(1<<10)) + " KiB"
		}
		return digits(v) + " B"
	case "%":
		return digits(v) + " %"
	}
	return digits(v)
}

// digits formats v with three significant digits.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// times formats a ratio. A small one becomes a fraction.
func times(v float64) string {
	if v > 0 && v < 0.1 {
		return fmt.Sprintf("1/%s", digits(math.Round(1/v)))
	}
	return digits(v)
}
