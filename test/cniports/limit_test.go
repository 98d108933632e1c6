// SPDX-License-Identifier: Apache-2.0

package cniports

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackfield/jackfield/internal/port/attach"
)

// However many ADDs of a pod run at the same time, it gets no more ports than the policy allows, and another pod gets its own.
func TestPodGetsNoMorePortsThanItsLimit(t *testing.T) {
	n := newNode(t)
	n.configure(nodeConfig + "    - {name: quota, for: {namespaces: [apps]}, limits: {pod: {ports: 2}}}\n")
	var group sync.WaitGroup
	answers := make(chan answer, 8)
	for i := range cap(answers) {
		group.Go(func() { answers <- n.run(environ("ADD", "c1", fmt.Sprintf("CNI_IFNAME=net%d", i)), conf(server)) })
	}
	group.Wait()
	close(answers)
	won := 0
	for a := range answers {
		switch {
		case a.Code == 0:
			won++
		case a.Code != attach.CodeDenied || !strings.Contains(a.String(), `rule "quota" has limits.pod.ports: 2`):
			t.Errorf("%s", a)
		}
	}
	if won != 2 || len(n.ports()) != 2 {
		t.Errorf("%d ADDs won; ports %q", won, n.ports())
	}
	n.mustRun(environ("ADD", "c2"), conf(server))
	for i := range cap(answers) {
		n.mustRun(environ("DEL", "c1", fmt.Sprintf("CNI_IFNAME=net%d", i)), conf(server))
	}
	n.mustRun(environ("ADD", "c1"), conf(server)) // its ports count no more
	n.mustRun(environ("DEL", "c1"), conf(server))
	n.mustRun(environ("DEL", "c2"), conf(server))
	n.checkNothingLeft("DEL")
}
