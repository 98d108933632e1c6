// SPDX-License-Identifier: Apache-2.0

// Package podresources asks the kubelet which devices it gave to the containers
// of a pod: a client of the Pod Resources API, v1, over its unix socket.
//
// Its invariant: nobody waits longer than they said they would, and nobody is
// told about another pod. [Client.Pod] returns by its caller's context and by
// [Options].Timeout, whichever is first, whatever the kubelet does. An answer is
// kept for the pod it was asked for, known by name and by UID (or sandbox ID), so
// that a pod made anew under an old name never sees its predecessor's devices.
//
// Nothing is opened before the first question, and the connection goes when it
// has been idle: a node without a kubelet pays one stat a question. Concurrent
// questions about one pod share one request. A request that outlives its callers
// goes on for [Options].CallTimeout, so that the answer of a slow kubelet is there
// when the container is tried again.
//
// The kubelet's Get method is used where there is one. It is alpha and off from
// 1.27, on from 1.34; older kubelets answer Unimplemented. Where it is off, and
// where it does not know the pod, a kubelet answers with the same code (Unknown),
// so that any refusal of Get is checked against List; what was learned is
// remembered for the connection.
//
// Answers are not trusted: their size, their counts and every field are checked,
// and only the pod that was asked for is decoded. Non-restartable init containers
// are not in them: the kubelet leaves those out.
package podresources
