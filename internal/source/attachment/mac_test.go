// SPDX-License-Identifier: Apache-2.0

package attachment

import "testing"

// Only the address that one Ethernet interface can have is valid, in configurations and in device-info.
func TestMACIsAddressOfOneInterface(t *testing.T) {
	for text, want := range map[string]string{
		"CA:FE:C0:FF:EE:00": "ca:fe:c0:ff:ee:00", "ca-fe-c0-ff-ee-00": "ca:fe:c0:ff:ee:00", "cafe.c0ff.ee00": "ca:fe:c0:ff:ee:00",
		"00:00:00:00:00:00": "", "ff:ff:ff:ff:ff:ff": "", "01:00:5e:00:00:01": "", "ca:fe:c0:ff:ee": "", "ca:fe:c0:ff:ee:00:11:22": "", "": "",
	} {
		mac, rule := ParseMAC(text)
		if mac != want || (rule == "") != (want != "") {
			t.Errorf("ParseMAC(%q) = %q, %q; want %q", text, mac, rule, want)
		}
		n := InterfaceInfo{MAC: text}
		if n.RemoveInvalid(); n.MAC != want {
			t.Errorf("device-info with %q: found %q, want %q", text, n.MAC, want)
		}
	}
}
