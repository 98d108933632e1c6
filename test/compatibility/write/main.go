// SPDX-License-Identifier: Apache-2.0

// Command write writes the tables of package compatibility into the pages. Run it in test/.
package main

import (
	"fmt"
	"os"

	"github.com/jackfield/jackfield/test/compatibility"
)

func main() {
	for _, table := range compatibility.Tables() {
		if err := write(table); err != nil {
			fmt.Fprintln(os.Stderr, "compatibility:", err)
			os.Exit(1)
		}
	}
}

func write(table compatibility.Table) error {
	file := "../" + table.Page
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := table.Replace(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
