package account

// The user of a request, carried through its context.

import "context"

type nameKey struct{}

// WithName stores in the request's context the user that it acts for; the lookup is done when it is needed.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// For a request's context, Of looks up the user that the request acts for.
func Of(ctx context.Context) (Account, error) {
	name, _ := ctx.Value(nameKey{}).(string)
	return Lookup(name)
}
