// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every licence and notice of a module is in the text. A module without one cannot be distributed.
func TestModuleNeedsLicense(t *testing.T) {
	for name, found := range map[string]bool{
		"LICENSE": true, "LICENCE.txt": true, "license.md": true, "COPYING": true, "NOTICE": true, "LICENSE-APACHE": true, "LICENSE-2.0.txt": true,
		"README.md": false, "license.go": false, "licenses": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("\nYou may.\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		err := appendLicenses(&text, "example.com/m v1.0.0", dir)
		if (err == nil) != found || found && !strings.Contains(text.String(), "\nexample.com/m v1.0.0, "+name+"\n\nYou may.\n") {
			t.Errorf("%s: %v, %q", name, err, text.String())
		}
		if err != nil && !strings.Contains(err.Error(), "example.com/m v1.0.0: found none") {
			t.Errorf("%s: the error does not name the module: %v", name, err)
		}
	}
}
