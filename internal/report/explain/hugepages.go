// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/pkg/devices"
)

// noteHugePages adds a note to the first request with EAL arguments if the container has fewer huge pages than DPDK
// needs. limit is the sum of the container's hugepages-* limits. A socket can be used without DPDK, so its note needs a
// command line that has the EAL arguments.
func noteHugePages(out *Explanation, args []string, limit quantity.Memory) {
	view, _ := devices.Parse(out.View) // the engine wrote it
	hasEAL := func(it engine.Item) bool {
		return slices.ContainsFunc(view, func(d devices.Device) bool {
			return len(d.Jackfield.EAL) > 0 && d.Name == it.Name && d.Interface == it.Interface
		})
	}
	i := slices.IndexFunc(out.Requests, hasEAL)
	if i < 0 {
		return
	}
	needed, without := hugePagesOf(args)
	usesEAL := strings.Contains(strings.Join(args, " "), "_EAL") || slices.ContainsFunc(view, func(d devices.Device) bool {
		return len(d.Jackfield.EAL) > 0 && d.Socket() == ""
	})
	note := ""
	switch {
	case without || !usesEAL && needed == 0:
		return
	case limit == 0:
		note = "DPDK needs huge pages, and the container has none: add hugepages-2Mi or hugepages-1Gi to its " +
			"resources.limits, and mount an emptyDir volume of medium HugePages"
	case needed > limit:
		note = fmt.Sprintf("the container's EAL arguments request %s of huge pages, and its hugepages-* limits are %s: "+
			"raise them", needed, limit)
	default:
		return
	}
	out.Requests[i].Notes = append(out.Requests[i].Notes, note)
}

// hugePagesOf returns the amount of memory that EAL arguments in a command line request ("Getting Started Guide", "EAL
// parameters"), 0 if they request none. args can be the command line of a shell. without means that the program uses no
// huge pages.
func hugePagesOf(args []string) (needed quantity.Memory, without bool) {
	words := strings.Fields(strings.Join(args, " "))
	for i, word := range words {
		option, value, hasValue := strings.Cut(word, "=")
		if !hasValue && i+1 < len(words) {
			value = words[i+1]
		}
		switch option {
		case "--no-huge":
			return 0, true
		case "-m", "--socket-mem", "--numa-mem":
			for node := range strings.SplitSeq(value, ",") {
				megabytes, _ := strconv.ParseUint(node, 10, 32)
				needed += quantity.Memory(megabytes << 20)
			}
		}
	}
	return needed, false
}
