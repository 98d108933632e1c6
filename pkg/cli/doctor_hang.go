// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/pkg/config"
)

const (
	// doctorLook is how long a directory may take before it counts as one that hangs,
	// and doctorCheck how long one check may, which reads every file of some.
	doctorLook, doctorCheck = time.Second, 30 * time.Second
	// doctorFew is what a check may take that reads a few files.
	doctorFew = 5 * time.Second
	// doctorHung is what a check gets where a directory hangs.
	doctorHung = 2 * time.Second
)

// directories looks which of the directories that the configuration names do not
// answer: whoever looks into one of these hangs.
func (d *doctor) directories() {
	host, dirs := d.host, d.cfg.Directories(nil)
	answered := make(chan int, len(dirs))
	for i, dir := range dirs {
		go func() {
			_, _ = host.Stat(dir.Path) // whatever it says, it is an answer
			answered <- i
		}()
	}
	d.hanging = make(map[string]bool)
	left := slices.Clone(dirs)
	late, isLate := time.After(doctorLook), false
	for n := 0; n < len(dirs) && !isLate; {
		select {
		case i := <-answered:
			left[i] = config.Directory{}
			n++
		case <-late:
			isLate = true
		}
	}
	// An answer that is there counts, whichever was seen first: it may be this process
	// that was held up.
	for len(answered) > 0 {
		left[<-answered] = config.Directory{}
	}
	for _, dir := range left {
		if dir.Path == "" {
			continue
		}
		d.hanging[dir.Path] = true
		d.say("directories", severityError, "see what it is mounted from, and whether its server or process lives; jackfield-nri takes it up by itself when it answers",
			"the directory %s (%s) does not answer: whoever looks into it hangs, and containers that need it are refused", dir.Path, dir.Use)
	}
}

// inTime makes one check, and gives it up where a file or directory that hangs holds
// it. What the check finds out is kept only when it is done, which is told.
func (d *doctor) inTime(name string, limit time.Duration, check func(d *doctor)) bool {
	sub := *d
	sub.out, sub.at = nil, new(atomic.Pointer[string])
	done := make(chan struct{})
	var crash any // valid when done
	go func() {
		defer close(done)
		defer func() { crash = recover() }()
		check(&sub)
	}()
	if len(d.hanging) > 0 {
		limit = min(limit, doctorHung)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	select {
	case <-done: // whichever was seen first
		if crash != nil {
			d.out = append(d.out, sub.out...)
			d.say(name, severityError, "please report it", "internal error of doctor, the check was not finished: %v", crash)
			return false
		}
		sub.out = append(d.out, sub.out...)
		*d = sub
		return true
	default:
		if at := sub.at.Load(); at != nil {
			d.say(name, severityError, "see what it is mounted from, and whether its server or process lives: the runtime waits for it, too, when it starts",
				"not looked at: %s does not answer within %v", *at, limit)
			return false
		}
		d.say(name, severityError, "", "not looked at: not done within %v, a directory that it needs does not answer", limit)
		return false
	}
}

// files are a runtime's, as a check looks at them.
func (d *doctor) files() runtimeFiles { return runtimeFiles{d.host, d.at} }
