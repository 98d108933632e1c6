// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// writer writes Prometheus' text format. Labels are given as name and value in
// turn.
type writer struct {
	b    []byte
	name string
}

func (w *writer) begin(f Family) {
	w.name = f.Name
	w.b = append(append(append(append(w.b, "# HELP "...), f.Name...), ' '), strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(f.Help)...)
	w.b = append(append(append(append(append(w.b, "\n# TYPE "...), f.Name...), ' '), f.Type...), '\n')
}

func (w *writer) uint(v uint64, labels ...string) {
	w.head("", labels)
	w.b = append(strconv.AppendUint(w.b, v, 10), '\n')
}

func (w *writer) float(v float64, labels ...string) {
	w.head("", labels)
	w.b = append(strconv.AppendFloat(w.b, v, 'g', -1, 64), '\n')
}

func (w *writer) head(suffix string, labels []string) {
	w.b = append(append(w.b, w.name...), suffix...)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		w.b = append(append(append(w.b, sep), labels[i]...), `="`...)
		w.value(labels[i+1])
		w.b = append(w.b, '"')
	}
	if len(labels) > 0 {
		w.b = append(w.b, '}')
	}
	w.b = append(w.b, ' ')
}

// value escapes a label's value.
func (w *writer) value(s string) {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "�")
	}
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\', '"':
			w.b = append(w.b, '\\', c)
		case '\n':
			w.b = append(w.b, '\\', 'n')
		default:
			w.b = append(w.b, c)
		}
	}
}

func (w *writer) histogram(h *Histogram, label, value string) {
	var n uint64
	for i, bound := range bounds() {
		n += h.counts[i].Load()
		w.head("_bucket", []string{label, value, "le", strconv.FormatFloat(float64(bound)/1e9, 'g', -1, 64)})
		w.b = append(strconv.AppendUint(w.b, n, 10), '\n')
	}
	n += h.counts[buckets].Load()
	w.head("_bucket", []string{label, value, "le", "+Inf"})
	w.b = append(strconv.AppendUint(w.b, n, 10), '\n')
	w.head("_sum", []string{label, value})
	w.b = append(strconv.AppendFloat(w.b, float64(h.sum.Load())/1e9, 'g', -1, 64), '\n')
	w.head("_count", []string{label, value})
	w.b = append(strconv.AppendUint(w.b, n, 10), '\n')
}
