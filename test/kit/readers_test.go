// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/devices"
)

const top = "../.."

// readers runs the page's programs.
type readers struct {
	t   *testing.T
	dir string
	// commands are the programs that this machine can run, by language.
	commands map[string][]string
}

func newReaders(t *testing.T) *readers {
	t.Helper()
	r := &readers{t: t, dir: t.TempDir(), commands: map[string][]string{}}
	// The sanitizers end the program at a fault of memory or arithmetic.
	if err := WriteSamples(t.Context(), r.dir, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"); err != nil {
		t.Fatal(err)
	}
	r.commands["go"] = []string{filepath.Join(r.dir, "go")}
	r.add("c", "gcc", filepath.Join(r.dir, "c"))
	r.add("python", "python3", "python3", "-S", "-B", "-X", "utf8", filepath.Join(r.dir, "sample.py"))
	return r
}

// add adds a language if the machine has the tool that it needs. In CI it must.
func (r *readers) add(language, tool string, command ...string) {
	r.t.Helper()
	if _, err := exec.LookPath(tool); err == nil {
		r.commands[language] = command
	} else if os.Getenv("CI") == "true" {
		r.t.Errorf("no %s, and CI promises that there is", tool)
	} else {
		r.t.Logf("%s is not tested: no %s", language, tool)
	}
}

// run returns what a language's program prints about a file, and whether it accepts the file.
func (r *readers) run(language, content string) (output string, accepted bool) {
	r.t.Helper()
	file := filepath.Join(r.dir, "devices.json")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	command := r.commands[language]
	cmd := exec.CommandContext(r.t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), devices.FileVariable+"="+file)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	// Go, C and Python end with status 1 after an error that they report.
	if err != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 || strings.Contains(stderr.String(), "runtime error:")) {
		r.t.Fatalf("%s with %.200q: %v\n%s", language, content, err, stderr.String())
	}
	if err != nil && language == "python" && !strings.Contains(stderr.String(), "ValueError: read ") {
		r.t.Errorf("python with %.200q: want a ValueError\n%s", content, stderr.String())
	}
	return stdout.String(), err == nil
}

// The programs of the page print what the page shows for the file of the reference.
func TestSamplesPrintWhatPageShows(t *testing.T) {
	r := newReaders(t)
	file, err := ReadBlock(top, "docs/reference/devices-json.md", "json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ReadBlock(top, Page, "text")
	if err != nil {
		t.Fatal(err)
	}
	for language := range r.commands {
		if got, ok := r.run(language, file); !ok || got != want {
			t.Errorf("%s prints\n%swant\n%s", language, got, want)
		}
	}
}

func TestHeaderCompilesAsCPlusPlus(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("skipped: no g++")
	}
	text, err := ReadBlock(top, Page, "c")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "g++", "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(top, "deploy/kit"), "-fsyntax-only", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// All readers accept the same files and read the same from them.
func TestReadersAgree(t *testing.T) {
	r := newReaders(t)
	device := func(keys string) string { return `[{"name":"n",` + keys + `"jackfield":{"eal":["-a","x y"]}}]` }
	pci := `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1"}}`
	for name, tc := range map[string]struct {
		content string
		want    string // a part of the output; "" for a file that is refused
	}{
		"no device":           {"[]", "EAL argument --no-pci"},
		"white space":         {" \t\r\n[ ] \n", "--no-pci"},
		"all types":           {`[{"name":"a","device-info":` + pci + `,"jackfield":{}},{"name":"b","device-info":{"type":"vdpa","version":"1.0.0","vdpa":{"pci-address":"0000:04:00.2"}},"jackfield":{}},{"name":"c","interface":"net1","device-info":{"type":"memif","version":"1.9.0","memif":{"path":"@x"}},"jackfield":{"socket-created-by":"application","eal":["--vdev=a,b"]}}]`, "name=c interface=net1 type=memif socket=@x pci= created-by=application\nEAL argument --vdev=a,b\nEAL argument --no-pci"},
		"PCI device":          {device(`"device-info":` + pci + `,`), "pci=0000:03:00.1 created-by=\nEAL argument -a\nEAL argument x y\n"},
		"unknown keys":        {device(`"z":[{"a":[1,-2.5e+3,true,false,null,"x\"]"]},{}],"device-info":{"type":"new","version":"1.2.0","new":{"pci-address":1}},`), "type=new socket= pci="},
		"null is missing":     {device(`"interface":null,"mtu":null,"mac":null,"device-info":null,`), "interface= type="},
		"escapes":             {device(`"interface":"\u00e9\ud83d\ude00\/\\\"\t",`), "interface=é😀/\\\"\t type="},
		"characters":          {device(`"interface":"é😀",`), "interface=é😀 type="},
		"type without map":    {device(`"device-info":{"type":"memif","version":"1.1.0"},`), "type=memif socket= "},
		"without jackfield":   {`[{"name":"n"}]`, "name=n "},
		"no argument":         {`[{"jackfield":{"eal":[]}}]`, "name= "},
		"many devices":        {"[" + strings.Repeat("{},", 4095) + "{}]", "--no-pci"},
		"too many devices":    {"[" + strings.Repeat("{},", 4096) + "{}]", ""},
		"too large":           {"[" + strings.Repeat(" ", 4<<20) + "]", ""},
		"empty":               {"", ""},
		"object":              {"{}", ""},
		"null":                {"null", ""},
		"null device":         {"[null]", ""},
		"number as a device":  {"[1]", ""},
		"array as a device":   {"[[]]", ""},
		"open":                {"[", ""},
		"comma":               {"[{},]", ""},
		"comma in an object":  {`[{"name":"n",}]`, ""},
		"two values":          {"[][]", ""},
		"text behind":         {"[]x", ""},
		"NUL behind":          {"[]\x00", ""},
		"open text":           {`[{"name":"n`, ""},
		"open escape":         {`[{"name":"\`, ""},
		"open code":           {`[{"name":"\u00`, ""},
		"wrong escape":        {`[{"name":"\x"}]`, ""},
		"wrong code":          {`[{"name":"\u00g0"}]`, ""},
		"NUL in a text":       {device(`"interface":"a\u0000b",`), ""},
		"NUL in an argument":  {`[{"jackfield":{"eal":["a\u0000b"]}}]`, ""},
		"NUL in a socket":     {`[{"jackfield":{"socket":"a\u0000b"}}]`, ""},
		"control character":   {"[{\"name\":\"a\nb\"}]", ""},
		"not UTF-8":           {"[{\"name\":\"\xff\"}]", ""},
		"overlong UTF-8":      {"[{\"name\":\"\xc0\xaf\"}]", ""},
		"surrogate as UTF-8":  {"[{\"name\":\"\xed\xa0\x80\"}]", ""},
		"cut UTF-8":           {"[{\"name\":\"\xe2\x82", ""},
		"byte order mark":     {"\ufeff[]", ""},
		"wrong name":          {`[{"name":1}]`, ""},
		"wrong info":          {device(`"device-info":[],`), ""},
		"wrong map":           {device(`"device-info":{"type":"pci","version":"1.1.0","pci":"x"},`), ""},
		"wrong map of others": {device(`"device-info":{"type":"pci","version":"1.1.0","memif":[]},`), ""},
		"wrong path":          {device(`"device-info":{"type":"memif","version":"1.1.0","memif":{"path":{}}},`), ""},
		"wrong extension":     {`[{"jackfield":[]}]`, ""},
		"wrong arguments":     {`[{"jackfield":{"eal":"-a"}}]`, ""},
		"wrong argument":      {`[{"jackfield":{"eal":[1]}}]`, ""},
		"wrong MTU":           {device(`"mtu":"9000",`), ""},
		"broken MTU":          {device(`"mtu":1.5,`), ""},
		"true as MTU":         {device(`"mtu":true,`), ""},
		"wrong number":        {device(`"z":01,`), ""},
		"wrong exponent":      {device(`"z":1e,`), ""},
		"NaN":                 {device(`"z":NaN,`), ""},
		"wrong word":          {device(`"z":truer,`), ""},
		"version 2":           {device(`"device-info":{"type":"pci","version":"2.0.0","pci":{"pci-address":"0000:03:00.1"}},`), ""},
		"version 10":          {device(`"device-info":{"type":"pci","version":"10.0.0"},`), ""},
		"no version":          {device(`"device-info":{"type":"pci"},`), ""},
		"deep array":          {`[{"z":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}]", ""},
		"deep object":         {`[{"z":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + "}]", ""},
		"deep and open":       {strings.Repeat("[", 1<<20), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			outputs := map[string]string{}
			for language := range r.commands {
				output, ok := r.run(language, tc.content)
				if ok != (tc.want != "") || !strings.Contains(output, tc.want) {
					t.Errorf("%s: accepted: %t; prints\n%swant %q", language, ok, output, tc.want)
				}
				outputs[language] = output
			}
			for language, output := range outputs {
				if output != outputs["go"] {
					t.Errorf("%s prints\n%sand Go\n%s", language, output, outputs["go"])
				}
			}
		})
	}
}

// No damaged file harms the C reader. It accepts the same ones as the reader in Go.
func TestReadersRefuseSameDamagedFiles(t *testing.T) {
	r := newReaders(t)
	if r.commands["c"] == nil {
		t.Skip("skipped: no gcc")
	}
	file, err := ReadBlock(top, "docs/reference/devices-json.md", "json")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		damaged := []byte(file)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(damaged))
			switch random.IntN(3) {
			case 0:
				damaged = damaged[:at+1]
			case 1:
				damaged[at] = "\"\\{}[]:,\x00\xff \n"[random.IntN(12)]
			case 2:
				damaged = append(damaged[:at:at], damaged[at+random.IntN(len(damaged)-at):]...)
				if len(damaged) == 0 {
					damaged = []byte{'['}
				}
			}
		}
		_, err := devices.Parse(damaged)
		if _, ok := r.run("c", string(damaged)); ok != (err == nil) {
			t.Errorf("C accepts: %t; Go: %v\n%s", ok, err, damaged)
		}
	}
}
