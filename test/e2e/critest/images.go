// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"

	ispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// staging is the registry of most images of critest.
const staging = "gcr.io/k8s-staging-cri-tools/"

// passwd and group are those of the busybox image, with the user and the group of test-image-predefined-group.
const (
	passwd = `root:x:0:0:root:/root:/bin/sh
www-data:x:33:33:www-data:/var/www:/bin/false
default-user:x:1000:1000:Linux User,,,:/home/default-user:/bin/sh
nobody:x:65534:65534:nobody:/home:/bin/false
`
	group = `root:x:0:
www-data:x:33:
default-user:x:1000:
group-defined-in-image:x:50000:default-user
nobody:x:65534:
`
)

// webServer takes the place of nginx and of Apache's httpd. critest reads its process ID file, its command line "master
// process" and its log "httpd".
const webServer = `#!/bin/sh
echo httpd
busybox httpd -p "$1" -h /www
echo $$ > /run/nginx.pid
while :; do sleep 1000; done
`

// newRegistry returns a registry with images under the names of those that critest pulls. They have the properties that
// critest checks. An image with a fixed digest cannot be built.
func newRegistry(kit *node.Kit) (*node.Registry, error) {
	base, err := node.TestFiles(kit, "top", "httpd", "ping", "netstat")
	if err != nil {
		return nil, err
	}
	files := []node.File{
		{Name: "www/", Mode: 0o755}, {Name: "www/index.html", Mode: 0o644, Data: []byte("critest\n")},
		{Name: "bin/nginx", Mode: 0o755, Data: []byte(webServer)},
		// Debian's busybox lacks ipcs.
		{Name: "bin/ipcs", Mode: 0o755, Data: []byte("#!/bin/sh\ncat /proc/sysvipc/shm\n")},
	}
	for _, f := range base {
		switch f.Name {
		case "etc/passwd":
			f.Data = []byte(passwd)
		case "etc/group":
			f.Data = []byte(group)
		}
		files = append(files, f)
	}
	var archive bytes.Buffer
	l := node.NewLayout(&archive)
	for name, config := range images() {
		own := append(files, node.File{Name: "etc/image", Mode: 0o644, Data: []byte(layerID(name))})
		l.Image(name, config, own)
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	r := node.NewRegistry()
	return r, r.Add(&archive)
}

// layerID returns the text that makes images of different names different. Tags of test-image-tags are one image.
func layerID(name string) string {
	repository, _, _ := strings.Cut(name, ":")
	return repository + "\n"
}

// images returns the configurations of the images by name.
func images() map[string]ispec.ImageConfig {
	// The first processes of containers have no handler of SIGTERM.
	config := ispec.ImageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"sh"}, StopSignal: "SIGKILL"}
	all := map[string]ispec.ImageConfig{
		"registry.k8s.io/e2e-test-images/busybox:1.29-2": config,
		// A spec removes it, so it must not be the node's image of sandboxes.
		"registry.k8s.io/pause:3.9": config,
	}
	for _, name := range []string{"test-image-latest:latest", "test-image-tag:test", "test-image-tag:all",
		"test-image-digest:latest", "test-image-1:latest", "test-image-2:latest", "test-image-3:latest",
		"test-image-tags:1", "test-image-tags:2", "test-image-tags:3"} {
		all[staging+name] = config
	}
	for name, user := range map[string]string{"user-uid": "1002", "user-username": "www-data",
		"user-uid-group": "1003:users", "user-username-group": "www-data:100", "predefined-group": "1000"} {
		withUser := config
		withUser.User = user
		all[staging+"test-image-"+name+":latest"] = withUser
	}
	for name, port := range map[string]string{
		"registry.k8s.io/e2e-test-images/nginx:1.14-2":                    "80",
		"registry.k8s.io/e2e-test-images/httpd:2.4.39-4":                  "80",
		fmt.Sprintf("%shostnet-nginx-%s:latest", staging, runtime.GOARCH): "12003",
	} {
		server := config
		server.Entrypoint, server.Cmd = []string{"/bin/nginx", port, "master process"}, nil
		all[name] = server
	}
	return all
}
