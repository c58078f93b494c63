"""The controller's commands, a module for each group. Exit codes: 0 done, 1 a switch failed or differs, 2 bad input."""

from controller.cli import watch as watch  # adds itself to `routes`
from controller.cli.path import path_app as path_app
from controller.cli.routes import routes_app as routes_app
from controller.cli.topo import topo_app as topo_app
