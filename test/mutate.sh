#!/usr/bin/env bash
# Checks that tests cover the defences. test/mutate/main.go documents its arguments.
cd "$(dirname "$0")" && exec go run ./mutate "$@"
