// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"fmt"
	"strconv"
	"strings"
)

// PCIAddress returns the PCI address in a text as DOMAIN:BUS:DEVICE.FUNCTION, and whether the text
// has this form: lspci, for example, omits the domain. If the text does not resemble an address, it
// returns "".
func PCIAddress(text string) (address string, wellFormed bool) {
	rest, function, ok := strings.Cut(text, ".")
	parts := strings.Split(rest, ":")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	if !ok || len(parts) != 3 || len(parts[0]) > 8 {
		return "", false
	}
	numbers := [4]uint64{}
	for i, part := range append(parts, function) {
		if i == 0 && part == "" {
			continue
		}
		n, err := strconv.ParseUint(part, 16, 32)
		if err != nil || n > [4]uint64{1<<32 - 1, 0xff, 0x1f, 7}[i] {
			return "", false
		}
		numbers[i] = n
	}
	address = fmt.Sprintf("%04x:%02x:%02x.%x", numbers[0], numbers[1], numbers[2], numbers[3])
	return address, len(parts[0]) >= 4 && len(parts[1]) == 2 && len(parts[2]) == 2 && len(function) == 1
}

// MalformedPCIAddress returns a hint at the address that a text was probably meant to be. It is ""
// for a well-formed address, and for a text that does not resemble one.
func MalformedPCIAddress(text string) string {
	address, wellFormed := PCIAddress(text)
	if address == "" || wellFormed {
		return ""
	}
	return Quote(text) + " is not a PCI address; did you mean " + address + "?"
}
