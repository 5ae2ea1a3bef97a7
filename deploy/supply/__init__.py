"""What the images and CI are made from: locks with hashes, bills of materials, base images by digest."""
