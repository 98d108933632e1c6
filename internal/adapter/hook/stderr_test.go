// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLogFileIsFoundInRuntimeCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"crun --systemd-cgroup --log-format=json --log=/run/x/oci-log create --bundle /b id": "/run/x/oci-log",
		"crun --log /a/log --log-format json create id":                                      "/a/log",
		"crun --log=/a/log create --log-format=json id":                                      "",
		"crun --log=/a/log create id":                                                        "",
		"crun --log-format=json --log=a/log create id":                                       "",
		"crun --log-format=json --log":                                                       "",
		"crun":                                                                               "",
		"":                                                                                   "",
	} {
		if got := jsonLogFile(strings.Split(line, " ")); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// For every command line of a runtime, the log is the file of the --log flag, and a message is one line in it.
func FuzzRuntimeLog(f *testing.F) {
	for _, line := range []string{"crun\x00--log-format=json\x00--log=/run/x/oci-log\x00create\x00--bundle\x00/b\x00id\x00", "runc\x00--log\x00/a/log\x00--log-format\x00json\x00run\x00",
		"crun\x00--log\x00--log-format=json\x00--log-format=json\x00--log", "\x00\x00", ""} {
		f.Add([]byte(line), "jackfield-hook: \"x\": no\nmore \u2028 \xff\x1b[1m")
	}
	f.Fuzz(func(t *testing.T, cmdline []byte, text string) {
		args := splitCmdline(cmdline)
		if file := jsonLogFile(args); file != "" {
			at := slices.IndexFunc(args, func(a string) bool { return a == "create" || a == "run" || a == "start" })
			if at < 0 {
				at = len(args)
			}
			named := slices.Contains(args, "--log="+file)
			for i := 1; i+1 < len(args); i++ {
				named = named || args[i] == "--log" && args[i+1] == file
			}
			if !path.IsAbs(file) || strings.ContainsRune(file, 0) || !named || !bytes.Contains(cmdline, []byte("json")) {
				t.Errorf("the log of %q is %q", args, file)
			}
			// Arguments after the command, such as the container's ID, do not change the result.
			if other := jsonLogFile(append(slices.Clone(args), "--log=/other", "--log-format=text")); at > 0 && at < len(args) && args[at-1] != "--log" && args[at-1] != "--log-format" && other != file {
				t.Errorf("the log of %q is %q, and %q with more arguments", args, file, other)
			}
		}

		line := formatLogLine(text, time.Unix(1, 0))
		var got struct{ Msg, Level, Time string }
		if err := json.Unmarshal(line, &got); err != nil || got.Level != "error" || got.Time != "1970-01-01T00:00:01Z" {
			t.Errorf("%q is logged as %q: %v", text, line, err)
		}
		if bytes.IndexByte(line, '\n') != len(line)-1 || got.Msg != string([]rune(text)) {
			t.Errorf("%q is logged as %q", text, line)
		}
	})
}

// A message is only appended to a log that this user owns.
func TestRuntimeLogOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: creating a file of another user needs root")
	}
	for _, uid := range []int{0, 12345} {
		file := filepath.Join(t.TempDir(), "log")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chown(file, uid, -1)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", "echo started; read x", "crun", "--log="+file, "--log-format=json", "create")
		in, err := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if err := errors.Join(err, outErr, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		// Start may return before /proc has the process's arguments.
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		appendToRuntimeLog(cmd.Process.Pid, "the message")
		in.Close()
		_ = cmd.Wait()
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "the message") != (uid == 0) {
			t.Errorf("the log of uid %d is %q, %v", uid, text, err)
		}
	}
}
