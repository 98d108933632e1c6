// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strconv"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// maxFaults bounds how many faults of a file are reported.
const maxFaults = 20

// joinFaults returns the faults as one error in the order of the file.
func joinFaults(faults diag.List) error {
	faults.Sort()
	errs := faults[:min(len(faults), maxFaults)].Unwrap()
	if more := len(faults) - maxFaults; more > 0 {
		errs = append(errs, &diag.Diagnostic{File: faults[0].File, Rule: "and " + strconv.Itoa(more) + " more"})
	}
	return errors.Join(errs...)
}
