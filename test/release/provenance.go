// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/jackfield/jackfield/deploy/artifact"
)

const (
	typeProvenance = "application/vnd.in-toto+json"
	typeSBOM       = "application/spdx+json"
)

// The documents of in-toto (Statement v1) and SLSA (provenance v1), as far as they are needed here.
type (
	statement struct {
		Type      string    `json:"_type"`
		Subject   []subject `json:"subject"`
		Predicate string    `json:"predicateType"`
		Content   predicate `json:"predicate"`
	}
	subject struct {
		Name   string            `json:"name"`
		Digest map[string]string `json:"digest"`
	}
	predicate struct {
		Definition definition `json:"buildDefinition"`
		Run        runDetails `json:"runDetails"`
	}
	definition struct {
		BuildType    string            `json:"buildType"`
		External     map[string]string `json:"externalParameters"`
		Dependencies []dependency      `json:"resolvedDependencies"`
	}
	dependency struct {
		URI    string            `json:"uri"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	runDetails struct {
		Builder map[string]string `json:"builder"`
	}
)

// newSubject names something with a digest, sha256:HEX.
func newSubject(name, digest string) subject {
	return subject{name, map[string]string{"sha256": strings.TrimPrefix(digest, "sha256:")}}
}

// statement says how subjects were made: from which commit, with which Go. It has no times, because the same
// commit gives the same bytes at any time.
func (r *release) statement(subjects ...subject) ([]byte, error) {
	return marshal(statement{
		Type: "https://in-toto.io/Statement/v1", Subject: subjects, Predicate: "https://slsa.dev/provenance/v1",
		Content: predicate{
			Definition: definition{
				BuildType: home + "/blob/main/docs/contributing/releases.md",
				External:  map[string]string{"target": "make release", "version": r.Version, "architectures": strings.Join(r.archs, ",")},
				Dependencies: []dependency{
					{"git+" + home + "@refs/tags/v" + r.Version, map[string]string{"gitCommit": r.Commit}},
					{"pkg:golang/toolchain@" + "go" + r.goVersion, nil},
				},
			},
			Run: runDetails{map[string]string{"id": r.builder}},
		},
	})
}

// makeProvenance makes the provenance of all files made so far.
func (r *release) makeProvenance() error {
	var subjects []subject
	for _, name := range r.names() {
		subjects = append(subjects, newSubject(name, artifact.Digest(r.files[name])))
	}
	data, err := r.statement(subjects...)
	r.files["jackfield-"+r.Version+".intoto.json"] = data
	return err
}
