// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// DocumentedKeys returns the keys of each section of docs/reference/json-output.md, the page.
func DocumentedKeys(t testing.TB, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	Must(t, err)
	sections := map[string][]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, list, _ := strings.Cut(section, "\n")
		for _, item := range regexp.MustCompile("(?m)^- (`[^:]*`): ").FindAllStringSubmatch(list, -1) {
			for key := range strings.SplitSeq(item[1], ", ") {
				sections[title] = append(sections[title], strings.Trim(key, "`"))
			}
		}
		slices.Sort(sections[title])
	}
	return sections
}

// JSONKeys returns the keys of an object, and of the objects that it embeds.
func JSONKeys(of reflect.Type) (keys []string) {
	for f := range of.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && key == "":
			keys = append(keys, JSONKeys(f.Type)...)
		case key != "-" && f.IsExported():
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
