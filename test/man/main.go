// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() { os.Exit(run()) }

func run() int {
	top := flag.String("C", "..", "`directory` of the checkout")
	flag.Parse()
	if err := write(*top); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		return 1
	}
	return 0
}

// write writes the pages into docs/man and removes all other files there.
func write(top string) error {
	all, err := generate(top)
	if err != nil {
		return err
	}
	dir := filepath.Join(top, "docs", "man")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.[1-8]"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if _, ok := all[filepath.Base(file)]; !ok {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	for name, page := range all {
		if err := os.WriteFile(filepath.Join(dir, name), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}
