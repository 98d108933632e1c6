// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// changes returns the section of CHANGELOG.md about this version, or about the release that a pre-release leads to.
func (r *release) changes() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.Source, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	final, _, _ := strings.Cut(r.Version, "-")
	for section := range strings.SplitSeq("\n"+string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		if version, _, _ := strings.Cut(title, " "); version == r.Version || version == final {
			return strings.TrimSpace(body), nil
		}
	}
	return "", fmt.Errorf("read CHANGELOG.md: found no section \"## %s\"", final)
}

var relativeLink = regexp.MustCompile(`\]\(([^):#]*)(#[^)]*)?\)`)

// absoluteLinks makes links of a page in a directory of the checkout work anywhere.
func (r *release) absoluteLinks(text, dir string) string {
	return relativeLink.ReplaceAllStringFunc(text, func(link string) string {
		m := relativeLink.FindStringSubmatch(link)
		if m[1] == "" {
			return link
		}
		return "](" + home + "/blob/v" + r.Version + "/" + path.Join(dir, m[1]) + m[2] + ")"
	})
}

// makeNotes makes the text of the release.
func (r *release) makeNotes(context.Context) error {
	section, err := r.changes()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Jackfield %s\n\n%s\n\n", r.Version, r.absoluteLinks(section, ""))
	fmt.Fprintf(&b, "## Install\n\n%s describes all ways. `SHA256SUMS` has the checksums of the files. The image and the chart are\n\n", r.absoluteLinks("[Install Jackfield](docs/how-to/install.md)", ""))
	for _, digest := range r.digests {
		fmt.Fprintf(&b, "- `%s`\n", digest)
	}
	r.files["RELEASE_NOTES.md"] = b.Bytes()
	return nil
}
