"""Where PyTorch has the distributions: each in a module of its own. Here families are together."""

# PyTorch's module: ours, and its classes.
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    module: (ours, tuple(classes.split()))
    for ours, modules in {
        "locations": {"normal": "Normal", "laplace": "Laplace", "cauchy": "Cauchy", "studentT": "StudentT", "uniform": "Uniform"},
        "gammas": {
            "gamma": "Gamma", "chi2": "Chi2", "exponential": "Exponential", "fishersnedecor": "FisherSnedecor", "dirichlet": "Dirichlet",
            "beta": "Beta",
        },
        "counts": {
            "bernoulli": "Bernoulli", "geometric": "Geometric", "binomial": "Binomial", "negative_binomial": "NegativeBinomial",
            "poisson": "Poisson", "continuous_bernoulli": "ContinuousBernoulli",
        },
        "categories": {
            "categorical": "Categorical", "one_hot_categorical": "OneHotCategorical OneHotCategoricalStraightThrough", "multinomial": "Multinomial",
        },
        "gaussians": {"multivariate_normal": "MultivariateNormal", "lowrank_multivariate_normal": "LowRankMultivariateNormal"},
        "matrices": {"wishart": "Wishart", "lkj_cholesky": "LKJCholesky"},
        "circular": {"von_mises": "VonMises"},
        "transformed": {"transformed_distribution": "TransformedDistribution"},
        "pushed": {
            "log_normal": "LogNormal", "logistic_normal": "LogisticNormal", "half_normal": "HalfNormal", "half_cauchy": "HalfCauchy",
            "inverse_gamma": "InverseGamma", "gumbel": "Gumbel", "weibull": "Weibull", "pareto": "Pareto", "kumaraswamy": "Kumaraswamy",
            "generalized_pareto": "GeneralizedPareto",
        },
        "relaxed": {
            "relaxed_bernoulli": "LogitRelaxedBernoulli RelaxedBernoulli",
            "relaxed_categorical": "ExpRelaxedCategorical RelaxedOneHotCategorical",
        },
        "distribution": {"exp_family": "ExponentialFamily"},
    }.items()
    for module, classes in modules.items()
}  # fmt: skip
