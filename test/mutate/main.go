// SPDX-License-Identifier: Apache-2.0

// Mutate checks that tests cover the defences: it removes each defence from a copy of the tree, and
// runs the test that must then fail. A run takes minutes, so it is not part of `make test`.
//
//	test/mutate.sh                     every mutation
//	test/mutate.sh staging- hostfs-    those whose names begin so
//	test/mutate.sh -l                  list them with their tests
//	test/mutate.sh -check              check that each edit and each test still exists
//	test/mutate.sh -build              check that each mutated tree compiles
//
// A mutation is test/mutations/NAME.txt. Its first line is the test, run from the top of the tree. Edits follow,
// separated by blank lines. A line of an edit begins with "-" if it is removed, "+" if it is added, and a blank if it
// stays. Line breaks and indentation do not matter. Exactly one file of the product must have the edited text, once,
// so code can move without a change here. A line "in PATH" before an edit limits it to the files below that path.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const top = ".." // the program runs in test/

var buildFailed = regexp.MustCompile(`\[(build|setup) failed\]`)

func main() {
	list := flag.Bool("l", false, "list the mutations with their tests")
	check := flag.Bool("check", false, "check that each edit and each test still exists")
	build := flag.Bool("build", false, "check that each mutated tree compiles")
	flag.Parse()
	if err := run(flag.Args(), *list, *check, *build); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(prefixes []string, list, check, build bool) error {
	mutations, err := readMutations(filepath.Join(top, "test/mutations"), prefixes)
	if err != nil {
		return err
	}
	if list {
		for _, m := range mutations {
			fmt.Printf("%-36s %s\n", m.name, m.command)
		}
		return nil
	}
	files, err := readProduct(top)
	if err != nil {
		return err
	}
	if faults := findFaults(top, files, mutations); len(faults) > 0 {
		return fmt.Errorf("%d stale mutations\n%s", len(faults), strings.Join(faults, "\n"))
	}
	if check {
		return nil
	}
	tree, err := os.MkdirTemp("", "jackfield-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if output, copied := shell(top, "git ls-files -z --cached --others --exclude-standard |"+
		"tar --null --ignore-failed-read -cf - -T - 2>/dev/null | tar -xf - -C "+tree+" && ln -s $PWD/.cache "+tree); !copied {
		return fmt.Errorf("copy the tree: %s", output)
	}
	return tryAll(tree, files, mutations, build)
}

func tryAll(tree string, files map[string][]byte, mutations []mutation, build bool) error {
	bad := 0
	for _, m := range mutations {
		fault, output := try(tree, files, m, build)
		if fault == "" {
			fmt.Printf("ok     %-36s %s\n", m.name, m.command)
			continue
		}
		bad++
		lines := strings.Split(strings.TrimSpace(output), "\n")
		lines = lines[max(0, len(lines)-20):]
		fmt.Printf("ERROR  %-36s %s (%s)\n       | %s\n", m.name, fault, m.command, strings.Join(lines, "\n       | "))
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d mutations failed", bad, len(mutations))
	}
	fmt.Printf("mutate: all %d mutations are good\n", len(mutations))
	return nil
}

// try removes the defence from the tree, runs its test or only builds the changed packages, and restores the tree. It
// returns the fault of a mutation whose test does not fail because of it.
func try(tree string, files map[string][]byte, m mutation, build bool) (fault, output string) {
	if !build {
		output, passed := shell(tree, m.command)
		if !passed {
			return "the test fails without the mutation", output
		} else if strings.Contains(output, "no tests to run") {
			return "the command runs no test", output
		}
	}
	changed, err := m.apply(files)
	if err != nil {
		return err.Error(), ""
	}
	command := m.command
	if build {
		command = "true"
	}
	for name, text := range changed {
		if build && strings.HasSuffix(name, ".go") {
			command += " && go build -o /dev/null ./" + filepath.Dir(name)
		}
		if err := os.WriteFile(filepath.Join(tree, name), text, 0o644); err != nil {
			return err.Error(), ""
		}
		defer os.WriteFile(filepath.Join(tree, name), files[name], 0o644)
	}
	output, passed := shell(tree, command)
	switch {
	case build && !passed, buildFailed.MatchString(output):
		return "does not build", output
	case !build && passed:
		return "survived: the test passes without the defence", output
	}
	return "", output
}

func shell(dir, command string) (output string, succeeded bool) {
	var out bytes.Buffer
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	err := cmd.Run()
	return out.String(), err == nil
}
