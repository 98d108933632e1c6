// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// sizes are the numbers of files of the benchmarks that grow with them.
var sizes = []int{10, 100, 1000, 5000}

// section is one part of the documentation's tables.
type section struct {
	name string
	// runs say how long and how often the benchmarks are run. One that a row or plot
	// needs and that is not among them is run for a second.
	runs    []bench
	rows    []row
	growths []growth
	rest    bool // run and list whatever else test/bench has
}

// bench is one run of benchmarks.
type bench struct {
	bench string // elements of the name; "*" in one stands for anything
	time  string // testing's -benchtime; "" is 1s
	count int    // how often; 0 is once
	pkg   string // from the root; "" is test/bench
}

// A benchmark of a package of its own gets into the tables by a line in rows: its
// figure, its peer's in the same run, and what it should be. See row in table.go.
var sections = []section{
	{
		name: "nri",
		runs: []bench{
			{bench: "NRICreateContainer", time: "1500x", count: 3},
			{bench: "NRIStaleDeviceInfo", time: "1000x", count: 3},
		},
		rows: []row{
			nri("a pod that asks for nothing", "NRICreateContainer/nothing-asked", "noop", "no-op plugin", 1.15),
			nri("4 CDI devices and 2 sockets", "NRICreateContainer/4-cdi-2-sockets", "noop", "no-op plugin", 1.6),
			nri("floor: a plugin that answers the same, made beforehand", "NRICreateContainer/4-cdi-2-sockets-canned", "noop", "no-op plugin", 0),
			nri("floor: … and makes the same directories and files", "NRICreateContainer/4-cdi-2-sockets-canned-and-files", "noop", "no-op plugin", 0),
			nri("floor: … and the same mounts", "NRICreateContainer/4-cdi-2-sockets-canned-and-mounts", "noop", "no-op plugin", 0),
			nri("4 CDI devices and 2 sockets", "NRICreateContainer/4-cdi-2-sockets-over-floor", "floor", "that floor", 0),
			nri("4 CDI devices and 2 sockets, `sockets.staging: directory`", "NRICreateContainer/4-cdi-2-sockets-directory", "noop", "no-op plugin", 0),
			nri("nothing asked, 10,000 device-info files of other sandboxes", "NRIStaleDeviceInfo/nothing-asked", "empty", "an empty directory", 0),
			nri("2 sockets, 10,000 device-info files of other sandboxes", "NRIStaleDeviceInfo/2-sockets", "empty", "an empty directory", 0),
		},
	},
	{
		name: "cdi",
		runs: []bench{
			{bench: "CDIInject", time: "20000x", count: 5},
			{bench: "CDIColdLoad/n=*/floor", time: "20x", count: 3},
			{bench: "CDIColdLoad/n=*/jackfield", time: "20x", count: 3},
			{bench: "CDIColdLoad/n=*/upstream", time: "3x"},
			{bench: "CDIAdd/n=*/floor", time: "3000x", count: 3},
			{bench: "CDIAdd/n=*/jackfield", time: "8500x", count: 3},
			{bench: "CDIAdd/n=10/upstream", time: "50x"},
			{bench: "CDIAdd/n=100/upstream", time: "20x"},
			{bench: "CDIAdd/n=1000/upstream", time: "5x"},
			{bench: "CDIAdd/n=5000/upstream", time: "2x"},
			{bench: "CDILookupUnderWrites/n=*/floor", time: "5x"},
			{bench: "CDILookupUnderWrites/n=*/jackfield", time: "10x"},
			{bench: "CDILookupUnderWrites/n=*/upstream", time: "5x"},
			{bench: "CDIAddMany/n=1000/nobody", time: "3x"},
			{bench: "CDIAddMany/n=1000/jackfield", time: "3x"},
			{bench: "CDIAddMany/n=1000/upstream", time: "1x"},
			{bench: "CDIHeap", time: "1x"},
			{bench: "CDIInjectProcess/n=0", time: "60x", count: 3},
			{bench: "CDIInjectProcess/n=10", time: "40x"},
			{bench: "CDIInjectProcess/n=100", time: "30x"},
			{bench: "CDIInjectProcess/n=1000", time: "15x"},
			{bench: "CDIInjectProcess/n=5000", time: "5x"},
		},
		rows: []row{
			cdi("one file added → resolvable, 1000 files, median", "CDIAdd/n=1000/SIDE p50-ns", 50e3, 0),
			cdi("one file added → resolvable, 5000 files, median", "CDIAdd/n=5000/SIDE p50-ns", 50e3, 0),
			none(cdi("renamed into place, looked up at once: missed, 1000 files", "CDIAdd/n=1000/SIDE %missed", 0, 0)),
			cdi("lookup p99 at 5000 files, 10 writes a second", "CDILookupUnderWrites/n=5000/SIDE p99-ns", 100e3, 0),
			cdi("100 files added to 1000: CPU", "CDIAddMany/n=1000/SIDE cpu-ms/op", 25e6, 0),
			cdi("cold load, 1000 files", "CDIColdLoad/n=1000/SIDE", 20e6, 1.5),
			cdi("cold load, 5000 files", "CDIColdLoad/n=5000/SIDE", 100e6, 1.5),
			cdi("heap a file, 5000 files", "CDIHeap/n=5000/SIDE heap-B/file", 2048, 0),
			cdi("one device into a spec, 1000 files", "CDIInject/n=1000/SIDE", 5e3, 0),
			process("`jackfield inject`, whole process, 1000 files", "CDIInjectProcess/n=1000", 25e6),
			process("`jackfield inject`, whole process, no files, nothing asked", "CDIInjectProcess/n=0", 4e6),
		},
		growths: []growth{
			{"cdi-add", "one file added → resolvable", cdiSides("CDIAdd/n=N/SIDE p50-ns"), 50e3},
			{"cdi-lookup-p99", "lookup p99 with 10 writes a second", cdiSides("CDILookupUnderWrites/n=N/SIDE p99-ns"), 100e3},
			{"cdi-load", "cold load", cdiSides("CDIColdLoad/n=N/SIDE"), 0},
			{"cdi-inject", "one device into a spec", cdiSides("CDIInject/n=N/SIDE"), 5e3},
			{"cdi-heap", "heap a file", cdiSides("CDIHeap/n=N/SIDE heap-B/file"), 2048},
			{"cdi-inject-process", "`jackfield inject`, whole process", []side{
				{"Jackfield", f("CDIInjectProcess/n=N jackfield-ms")}, {"upstream's library", f("CDIInjectProcess/n=N upstream-ms")},
				{"Go's hello, world", f("CDIInjectProcess/n=N hello-ms")},
			}, 0},
		},
	},
	{
		name: "daemon",
		runs: []bench{{bench: "Rebind", time: "1000x"}, {bench: "Idle", time: "5x"}, {bench: "DaemonIdle", time: "3x"}},
		rows: []row{
			{text: "a socket made anew → a container connects again, 100 containers hold it, median", ours: f("Rebind p50-ms"), most: 5e6},
			{text: "the same, p99", ours: f("Rebind p99-ms"), most: 5e6},
			{text: "a socket made anew → the last of the 100 containers has connected, too, median", ours: f("Rebind all-p50-ms"), most: 5e6},
			{text: "the same, p99", ours: f("Rebind all-p99-ms"), most: 5e6},
			{text: "watching 1,000 sockets to which nothing happens: CPU", ours: f("Idle %core"), most: 1},
			{text: "start → registered, 1,000 CDI files", ours: f("DaemonIdle ms-to-registered"), most: 50e6},
			{text: "idle daemon's memory, 1,000 CDI files, metrics and audit on", ours: f("DaemonIdle MiB-resident"), most: 16 << 20},
		},
	},
	{
		name: "hook",
		runs: []bench{{bench: "HookProcess", time: "40x", count: 3}, {bench: "HookCreateRuntime", time: "40x", count: 3}},
		rows: []row{
			hook("`jackfield-hook --version`: a program that links what the hook does, and does nothing", "HookProcess/version", 0, 0),
			hook("`jackfield-hook` for a container that asks for nothing", "HookProcess/nothing-asked", 0, 2),
			hook("`jackfield-hook`, one device, 1 CDI file", "HookProcess/one-device/n=1", 0, 2),
			hook("`jackfield-hook`, one device, 10 CDI files", "HookProcess/one-device/n=10", 0, 2),
			hook("`jackfield-hook`, one device of 1,000 CDI files", "HookProcess/one-device/n=1000", 25e6, 0),
			hook("a Go program that enters the container's mount namespace, and does nothing", "HookCreateRuntime/enters", 0, 0),
			hook("`jackfield-hook` at `createRuntime`, nothing asked for", "HookCreateRuntime/nothing-asked", 0, 2),
			hook("`jackfield-hook` at `createRuntime`, one mount, 1 CDI file", "HookCreateRuntime/one-mount/n=1", 0, 2),
			hook("`jackfield-hook` at `createRuntime`, one mount of 10 CDI files", "HookCreateRuntime/one-mount/n=10", 0, 2),
		},
	},
	{
		// What the benchmarks say that no section has, of test/bench all of them, of
		// other packages those named here.
		name: "others",
		runs: []bench{
			{bench: "Resolve", pkg: "pkg/resolve", count: 3},
		},
		rest: true,
	},
}

// nri is a row of a benchmark that reports µs, NAME-µs and x/NAME.
func nri(text, bench, name, by string, most float64) row {
	return row{text: text, ours: f(bench + " µs"), peer: f(bench + " " + name + "-µs"), by: by, ratio: f(bench + " x/" + name), mostTimes: most}
}

// hook is a row of a whole process beside one that does nothing.
func hook(text, bench string, most, mostTimes float64) row {
	return row{text: text, ours: f(bench + " jackfield-ms"), peer: f(bench + " hello-ms"), by: "Go's hello, world", ratio: f(bench + " x/hello"), most: most, mostTimes: mostTimes}
}

// cdi is a row of a benchmark that has the sides jackfield, upstream and floor.
func cdi(text, bench string, most, mostFloor float64) row {
	side := func(name string) figure { return f(strings.ReplaceAll(bench, "SIDE", name)) }
	return row{text: text, ours: side("jackfield"), peer: side("upstream"), by: "upstream", floor: side("floor"), most: most, mostFloor: mostFloor}
}

// none is a row whose figure must be 0.
func none(w row) row {
	w.none = true
	return w
}

// process is a row of CDIInjectProcess.
func process(text, bench string, most float64) row {
	return row{text: text, ours: f(bench + " jackfield-ms"), peer: f(bench + " upstream-ms"), by: "upstream's library",
		floor: f(bench + " hello-ms"), under: "Go's hello, world", most: most}
}

func cdiSides(bench string) []side {
	var out []side
	for _, s := range []struct{ name, side string }{{"Jackfield", "jackfield"}, {"upstream's pkg/cdi", "upstream"}, {"floor", "floor"}} {
		out = append(out, side{s.name, f(strings.ReplaceAll(bench, "SIDE", s.side))})
	}
	return out
}

func sectionNames() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// figures are all that the rows and plots show.
func (s *section) figures() []figure {
	var all []figure
	for _, w := range s.rows {
		all = append(all, w.ours, w.peer, w.ratio, w.floor)
	}
	for _, g := range s.growths {
		for _, side := range g.sides {
			all = append(all, side.figure)
		}
	}
	return all
}

// plan is every run, with those that only a row or a plot names.
func (s *section) plan() []bench {
	runs := make([]bench, len(s.runs))
	planned := map[string]bool{"": true}
	for i, b := range s.runs {
		if b.pkg == "" {
			b.pkg = ownPackage
		}
		runs[i] = b
		planned[topOf(b.bench)] = true
	}
	for _, fig := range s.figures() {
		if !planned[fig.top()] {
			planned[fig.top()] = true
			runs = append(runs, bench{bench: fig.top(), pkg: ownPackage})
		}
	}
	return runs
}

func topOf(name string) string { return f(name).top() }
