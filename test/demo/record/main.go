// SPDX-License-Identifier: Apache-2.0

// Command record runs the demonstration in a terminal, records it as an asciicast, and draws the recording as an
// animated SVG.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackfield/jackfield/test/demo/asciicast"
)

// first is the first line of the demonstration. What make and downloads print before it is left out.
const first = "A private containerd"

func main() {
	top := flag.String("C", "..", "`directory` of the checkout")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := record(ctx, *top); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, top string) error {
	cast, err := asciicast.Run(ctx, top, "make", "--no-print-directory", "demo")
	if err != nil {
		return err
	}
	cast = cast.From(first)
	if text := cast.Text(); !strings.HasPrefix(text, first) || !strings.Contains(text, "demo: ok") {
		return errors.New("the demonstration did not run on a real containerd")
	}
	// The file has times in milliseconds.
	data := cast.Encode()
	if cast, err = asciicast.Decode(data); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(top+"/test/demo/testdata/demo.cast", data, 0o644),
		os.WriteFile(top+"/docs/images/demo.svg", cast.SVG(), 0o644))
}
