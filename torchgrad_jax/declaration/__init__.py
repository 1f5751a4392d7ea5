"""The form in which operators are declared: schema, promotion, derivatives, and what a declaration is made into for the runtime. Knows no Tensor."""
