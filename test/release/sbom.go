// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/deploy/artifact"
)

// The parts of SPDX 2.3 that an SBOM of Go programs needs.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Concluded string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		Purpose   string         `json:"primaryPackagePurpose,omitempty"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		External  []spdxExternal `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

var notInID = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// sbom describes an architecture's programs: which modules, and which Go, are linked into each of them. It reads
// this from the programs themselves.
func (r *release) sbom(name, arch string) ([]byte, error) {
	programs, err := artifact.Modules(r.programs(arch))
	if err != nil {
		return nil, err
	}
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name, Namespace: home + "/releases/download/v" + r.Version + "/" + name + ".spdx.json#" + r.Commit,
		Creation: spdxCreation{Created: r.Time.Format(time.RFC3339), Creators: []string{"Organization: Jackfield", "Tool: jackfield-release"}},
	}
	toolchain := artifact.Module{Path: "stdlib"}
	if toolchain.Version, err = artifact.GoVersion(r.programs(arch)); err != nil {
		return nil, err
	}
	modules := map[artifact.Module]string{}
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		data, err := os.ReadFile(filepath.Join(r.programs(arch), program))
		if err != nil {
			return nil, err
		}
		own := spdxPackage{ID: "SPDXRef-Program-" + program, Name: program, Version: r.Version, Location: home + "/releases/tag/v" + r.Version, Concluded: "Apache-2.0", Declared: "Apache-2.0",
			Copyright: "NOASSERTION", Purpose: "APPLICATION", Checksums: []spdxChecksum{{"SHA256", strings.TrimPrefix(artifact.Digest(data), "sha256:")}},
			External: []spdxExternal{{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:golang/github.com/jackfield/jackfield@v%s#cmd/%s", r.Version, program)}}}
		doc.Packages = append(doc.Packages, own)
		doc.Relationships = append(doc.Relationships, spdxRelationship{doc.ID, "DESCRIBES", own.ID})
		for _, m := range append([]artifact.Module{toolchain}, programs[program]...) {
			modules[m] = "SPDXRef-Module-" + notInID.ReplaceAllString(m.String(), "-")
			doc.Relationships = append(doc.Relationships, spdxRelationship{own.ID, "DEPENDS_ON", modules[m]})
		}
	}
	byName := func(a, b artifact.Module) int { return strings.Compare(a.String(), b.String()) }
	for _, m := range slices.SortedFunc(maps.Keys(modules), byName) {
		doc.Packages = append(doc.Packages, spdxPackage{ID: modules[m], Name: m.Path, Version: m.Version, Location: "NOASSERTION", Concluded: "NOASSERTION", Declared: "NOASSERTION", Copyright: "NOASSERTION",
			Purpose: "LIBRARY", External: []spdxExternal{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.String()}}})
	}
	return marshal(doc)
}

// marshal returns indented JSON.
func marshal(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}
