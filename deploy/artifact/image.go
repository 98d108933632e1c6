// SPDX-License-Identifier: Apache-2.0

package artifact

import "strings"

const home = "https://github.com/jackfield/jackfield"

// Tag is the tag of images of this version.
func (b Build) Tag() string {
	if b.Version == "" {
		return "devel"
	}
	return strings.ReplaceAll(b.Version, "+", "_")
}

// ImageConfig is the configuration of the image. The user is root, because NRI's socket belongs to
// root. It is a number, so that the runtime needs no /etc/passwd.
func (b Build) ImageConfig() Config {
	labels := map[string]string{
		"org.opencontainers.image.title":       "jackfield",
		"org.opencontainers.image.description": "Devices and fast-path sockets for containers",
		"org.opencontainers.image.url":         home,
		"org.opencontainers.image.source":      home,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     b.Tag(),
	}
	if b.Commit != "" {
		labels["org.opencontainers.image.revision"] = b.Commit
	}
	return Config{User: "0:0", Env: []string{"PATH=/usr/bin"}, Entrypoint: []string{"/usr/bin/jackfield-nri"},
		WorkingDir: "/", Labels: labels}
}

// ImageFiles returns the files of an image with programs from a directory, and the licences of
// their modules.
func ImageFiles(programs string, licenses []File) ([]File, error) {
	files := []File{
		{Name: "dev/", Mode: 0o755}, {Name: "etc/", Mode: 0o755}, {Name: "etc/jackfield/", Mode: 0o755},
		{Name: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\n")},
		{Name: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/:/sbin/nologin\n")},
		{Name: "proc/", Mode: 0o755}, {Name: "run/", Mode: 0o755}, {Name: "sys/", Mode: 0o755},
		{Name: "tmp/", Mode: 0o1777},
		{Name: "usr/", Mode: 0o755}, {Name: "usr/bin/", Mode: 0o755}, {Name: "usr/share/", Mode: 0o755},
		{Name: "usr/share/licenses/", Mode: 0o755},
		{Name: "usr/share/licenses/jackfield/", Mode: 0o755},
		{Name: "var/", Mode: 0o755}, {Name: "var/lib/", Mode: 0o755}, {Name: "var/run", Link: "../run"},
	}
	for _, l := range licenses {
		l.Name = "usr/share/licenses/jackfield/" + l.Name
		files = append(files, l)
	}
	built, err := ReadPrograms(programs, "usr/bin")
	return append(files, built...), err
}
