# SPDX-License-Identifier: Apache-2.0
"""What the real SGLang stack needs to be rehearsed on a machine without a GPU.

Two entry points that SGLang finds by itself (``platform``, ``nixl_memory``) and the maker of the canary model
(``canary``). Installed only into the engine's venv, only by inventories that rehearse. Nothing here is imported at
package level, because SGLang imports this package early in every one of its processes.
"""
