package nrirt

import (
	"context"
	"errors"
	"path"
	"sync/atomic"

	"github.com/containerd/ttrpc"
)

// Hook is called before each call of the protocol with the bare name of its
// method: "RegisterPlugin" (the plugin's request, before it is answered),
// "Configure", "Synchronize", "RunPodSandbox", "StartContainer" and so on (the
// runtime's, before they are sent). It may wait: ctx ends with the call or
// with the runtime. Its error is the call's; ErrCut closes the connection.
type Hook func(ctx context.Context, method string) error

// ErrCut is what a Hook returns to close the plugin's connection at that call
// (every plugin's at a RegisterPlugin).
var ErrCut = errors.New("cut the connection")

// SetHook sets the hook; nil takes it away.
func (r *Runtime) SetHook(h Hook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = h
}

// runHook runs the hook before the call of the method.
func (r *Runtime) runHook(ctx context.Context, method string) error {
	r.mu.Lock()
	hook, ended := r.hook, r.hookCtx
	r.mu.Unlock()
	if hook == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ended, cancel)
	defer stop()
	return hook(ctx, path.Base(method))
}

// interceptCall is for the calls of the runtime to plugins.
func (r *Runtime) interceptCall(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
	err := r.runHook(ctx, info.FullMethod)
	if errors.Is(err, ErrCut) {
		return ttrpc.ErrClosed // the adaptation closes the connection for it
	}
	if err != nil {
		return err
	}
	return invoke(ctx, req, resp)
}

// interceptRequest is for the requests of plugins to the runtime.
func (r *Runtime) interceptRequest(ctx context.Context, unmarshal ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	err := r.runHook(ctx, info.FullMethod)
	if errors.Is(err, ErrCut) {
		r.CutConnections()
		return nil, ttrpc.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	return method(ctx, unmarshal)
}

// CountCalls counts the calls of a method from now on; the result says how many
// there were. It takes the place of a hook.
func (r *Runtime) CountCalls(method string) func() int {
	var n atomic.Int64
	r.SetHook(func(_ context.Context, m string) error {
		if m == method {
			n.Add(1)
		}
		return nil
	})
	return func() int { return int(n.Load()) }
}
