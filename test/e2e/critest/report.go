// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// result is the result of one spec.
type result struct {
	State   string // of ginkgo: "passed", "failed", "timedout", "skipped" and others
	Message string // of a failure
}

// readReport reads a JSON report of ginkgo and returns the results by the specs' full texts.
func readReport(file string) (map[string]result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText, State     string
			LeafNodeType            string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read report %q: %w", file, err)
	}
	results := map[string]result{}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
			if s.LeafNodeType == "It" && !strings.Contains(name, "benchmark") {
				results[name] = result{State: s.State, Message: s.Failure.Message}
			}
		}
	}
	return results, nil
}

func (r result) outcome() string {
	if r.State == "passed" || r.State == "skipped" {
		return r.State
	}
	return "failed"
}

func (r result) failed() bool { return r.outcome() == "failed" }

func (r result) equal(other result) bool { return r.outcome() == other.outcome() }

func (r result) String() string {
	return r.State + ": " + strings.Join(strings.Fields(r.Message), " ")
}
