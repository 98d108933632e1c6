// SPDX-License-Identifier: Apache-2.0

// Command hello prints a line. Its run time is the minimum of a Go process.
package main

import "fmt"

func main() { fmt.Println("hello, world") }
