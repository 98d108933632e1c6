// SPDX-License-Identifier: Apache-2.0

// Command hello prints a line. It is what a Go process costs at least.
package main

import "fmt"

func main() { fmt.Println("hello, world") }
